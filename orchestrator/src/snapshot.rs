//! State on disk: bases, layers, the folder a tick writes to. Files only; rows are in `db`.
//!
//! ```text
//! data_dir/b/<base>/<slot>            the slot as the image has it, and passwd, group
//! data_dir/l/<layer>/<slot>           a sealed layer, never written again
//! data_dir/u/<layer>/<slot>/{up,wk}   what a running tick writes; becomes layer <layer>
//! data_dir/t/<any>                    trash: renamed here first, then removed
//! ```
//!
//! Everything here blocks; callers use `spawn_blocking`. Order of durability: data, rename, both
//! parent folders; only then may a row name the layer.
