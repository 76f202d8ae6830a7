//! Time as the sandbox's limits mean it: CLOCK_BOOTTIME goes on while the host sleeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Time since the host's start.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Becomes readable at one set time.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> Result<Alarm, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Boottime, flags).map(Alarm)
    }

    /// Replaces the set time. A time that has passed makes it readable at once.
    pub(crate) fn set(&self, at: Duration) -> Result<(), Errno> {
        let at = at.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: at.as_secs() as i64,
            tv_nsec: i64::from(at.subsec_nanos()) as _,
        };
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let setting = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &setting).map(drop)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
