//! The conformance suite of `sandbox::Backend`: the same cases on Docker and on the fake, then
//! what only one of them can show. Docker must answer, and `deploy/images/build` must have run.

#[path = "backend/both.rs"]
mod both;
#[path = "backend/built.rs"]
mod built;
#[path = "backend/daemon.rs"]
mod daemon;
#[path = "backend/images.rs"]
mod images;
#[path = "backend/on_docker.rs"]
mod on_docker;
#[path = "backend/on_fake.rs"]
mod on_fake;
#[path = "backend/registry.rs"]
mod registry;
#[path = "backend/stage.rs"]
mod stage;

macro_rules! on_both {
    ($($case:ident)*) => {
        mod docker {
            $(#[tokio::test] async fn $case() {
                crate::both::$case(crate::stage::Stage::docker().await).await;
            })*
        }
        mod fake {
            $(#[tokio::test] async fn $case() {
                crate::both::$case(crate::stage::Stage::fake().await).await;
            })*
        }
    };
}

on_both! {
    a_program_speaks_on_both_streams_and_its_code_is_told
    at_01_no_short_output_is_lost
    at_02_a_child_left_behind_does_not_hold_the_stream
    at_03_a_line_of_3_mb_goes_in_and_comes_out
    a_script_may_come_on_standard_input
    a_missing_program_is_refused_by_name
    signals_end_a_program_and_are_told
    a_paused_program_goes_on_after_resume
    files_go_in_and_out_by_frames
    what_changed_is_in_the_upper_and_the_next_sandbox_sees_it
    the_root_is_read_only
    output_over_the_cap_is_cut_and_the_count_told
    a_sandbox_whose_worker_lets_go_is_over
    removal_is_repeatable_and_nothing_is_no_error
    cl_02_a_running_sandbox_is_found_and_removed
    a_base_belongs_to_the_agent
    an_image_that_is_missing_or_another_is_named
}
