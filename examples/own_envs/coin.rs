// coin.rs: guess the side of a coin that may be biased. No crate is needed.
//
//     rustc --edition 2021 -O --crate-type cdylib coin.rs
//
// Then stepmill.make("libcoin.so", num_envs=4096, bias=0.9) runs it.
use std::ffi::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null;
use std::slice::from_raw_parts;

// ---- the env ----------------------------------------------------------------------------------

struct Coin {
    bias: f64,
    side: i64,
}

impl Coin {
    fn check(settings: &[f64]) -> Result<(), String> {
        let bias = settings[0];
        if (0.0..=1.0).contains(&bias) { Ok(()) } else { Err(format!("bias: expected 0 to 1, got {bias:.6}")) }
    }

    fn new(settings: &[f64]) -> Coin {
        Coin { bias: settings[0], side: 0 }
    }

    fn reset(&mut self, random: &mut Random) {
        self.side = (random.uniform() < self.bias) as i64;
    }

    fn step(&mut self, guess: i64, random: &mut Random) -> Outcome {
        self.side = (random.uniform() < self.bias) as i64;
        Outcome { reward: (guess == self.side) as i64 as f64, terminated: 0, truncated: 0 }
    }
}

static SETTINGS: [Setting; 1] = [Setting { key: c"bias".as_ptr(), kind: REAL, value: 0.5 }];
static SIDE: Array = Array { kind: DISCRETE, dtype: INT64, high: 1.0, ..A_NUMBER };

#[no_mangle]
extern "C" fn stepmill_c_env() -> *const Env<Coin> {
    static ENV: Env<Coin> = Env {
        version: 1,
        size: size_of::<Env<Coin>>() as u32,
        name: c"Coin".as_ptr(),
        env_size: size_of::<Coin>() as i64,
        never_blocks: 1,
        setting_count: 1,
        settings: SETTINGS.as_ptr(),
        options: null(),
        spaces: Spaces {
            observation: &SIDE,
            action: &SIDE,
            info: null(),
            observation_count: 1,
            action_count: 1,
            info_count: 0,
        },
        describe: Some(describe),
        init,
        reset,
        step,
        observe,
        step_many: None,
        save: None,
        load: None,
        close: None,
    };
    &ENV
}

// ---- what the engine calls --------------------------------------------------------------------

// Runs `body`. An Err or a panic becomes a message and a code, and the error of that env alone: a panic that got out of an
// `extern "C"` function would end the process.
fn guarded(error: *mut c_char, body: impl FnOnce() -> Result<(), String>) -> c_int {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(message)) => message,
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast::<&str>().map_or("it panicked".to_string(), |text| text.to_string()),
        },
    };
    let bytes = &message.as_bytes()[..message.len().min(ERROR_SIZE - 1)];
    unsafe {
        error.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        *error.add(bytes.len()) = 0;
    }
    1
}

extern "C" fn describe(settings: *const f64, _: *mut Spaces, error: *mut c_char) -> c_int {
    guarded(error, || Coin::check(unsafe { from_raw_parts(settings, SETTINGS.len()) }))
}

extern "C" fn init(env: *mut Coin, settings: *const f64, error: *mut c_char) -> c_int {
    guarded(error, || Ok(unsafe { env.write(Coin::new(from_raw_parts(settings, SETTINGS.len()))) }))
}

extern "C" fn reset(env: *mut Coin, random: *mut Random, _: *const f64, error: *mut c_char) -> c_int {
    guarded(error, || Ok(unsafe { (*env).reset(&mut *random) }))
}

extern "C" fn step(
    env: *mut Coin,
    action: *const *const c_void,
    random: *mut Random,
    outcome: *mut Outcome,
    error: *mut c_char,
) -> c_int {
    guarded(error, || Ok(unsafe { *outcome = (*env).step(*(*action).cast::<i64>(), &mut *random) }))
}

extern "C" fn observe(
    env: *const Coin,
    observation: *const *mut c_void,
    _: *const *mut c_void,
    error: *mut c_char,
) -> c_int {
    guarded(error, || Ok(unsafe { *(*observation).cast::<i64>() = (*env).side }))
}

// ---- stepmill/c_env.h, in Rust: the same for every env ----------------------------------------

const ERROR_SIZE: usize = 1024;
const REAL: i32 = 2;
const DISCRETE: i32 = 1;
const INT64: i32 = 7;

#[repr(C)]
struct Setting {
    key: *const c_char,
    kind: i32,
    value: f64,
}

#[repr(C)]
struct Array {
    name: *const c_char,
    kind: i32,
    dtype: i32,
    rank: i32,
    shape: *const i64,
    low: f64,
    high: f64,
    lows: *const f64,
    highs: *const f64,
}

const A_NUMBER: Array =
    Array { name: null(), kind: 0, dtype: 0, rank: 0, shape: null(), low: 0.0, high: 0.0, lows: null(), highs: null() };

#[repr(C)]
struct Spaces {
    observation: *const Array,
    action: *const Array,
    info: *const Array,
    observation_count: i32,
    action_count: i32,
    info_count: i32,
}

#[repr(C)]
struct Random {
    uniform: extern "C" fn(*mut Random) -> f64,
    integer: extern "C" fn(*mut Random, i64, i64) -> i64,
    normal: extern "C" fn(*mut Random) -> f64,
}

#[allow(dead_code)]
impl Random {
    fn uniform(&mut self) -> f64 {
        (self.uniform)(self)
    }
    fn integer(&mut self, low: i64, high: i64) -> i64 {
        (self.integer)(self, low, high)
    }
    fn normal(&mut self) -> f64 {
        (self.normal)(self)
    }
}

#[repr(C)]
struct Outcome {
    reward: f64,
    terminated: u8,
    truncated: u8,
}

type Put = extern "C" fn(*mut c_void, *const c_void, i64);

#[repr(C)]
struct Env<E> {
    version: u32,
    size: u32,
    name: *const c_char,
    env_size: i64,
    never_blocks: i32,
    setting_count: i32,
    settings: *const Setting,
    options: *const *const c_char,
    spaces: Spaces,
    describe: Option<extern "C" fn(*const f64, *mut Spaces, *mut c_char) -> c_int>,
    init: extern "C" fn(*mut E, *const f64, *mut c_char) -> c_int,
    reset: extern "C" fn(*mut E, *mut Random, *const f64, *mut c_char) -> c_int,
    step: extern "C" fn(*mut E, *const *const c_void, *mut Random, *mut Outcome, *mut c_char) -> c_int,
    observe: extern "C" fn(*const E, *const *mut c_void, *const *mut c_void, *mut c_char) -> c_int,
    step_many: Option<extern "C" fn(i32, *const *mut E, *const *const c_void, *const *mut Random, *mut Outcome)>,
    save: Option<extern "C" fn(*const E, *mut c_void, Put, *mut c_char) -> c_int>,
    load: Option<extern "C" fn(*mut E, *const c_void, i64, *mut c_char) -> c_int>,
    close: Option<extern "C" fn(*mut E)>,
}

// Nothing writes to these.
unsafe impl Sync for Setting {}
unsafe impl Sync for Array {}
unsafe impl<E> Sync for Env<E> {}
