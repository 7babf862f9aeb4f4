// coin.zig: guess the side of a coin that may be biased.
//
//     zig build-lib -dynamic -O ReleaseFast -lc coin.zig
//
// Then stepmill.make("libcoin.so", num_envs=4096, bias=0.9) runs it. Without a zig of your own, pip install ziglang, and
// write `python -m ziglang` in its place.
extern fn snprintf(to: [*]u8, size: usize, format: [*:0]const u8, ...) c_int;

// ---- the env ----------------------------------------------------------------------------------

const Coin = extern struct {
    bias: f64,
    side: i64,
};

const settings = [_]Setting{.{ .key = "bias", .kind = real, .value = 0.5 }};
const side = Array{ .kind = discrete, .dtype = int64, .high = 1 };

fn describe(given: [*]const f64, _: *Spaces, message: [*]u8) callconv(.c) c_int {
    if (given[0] >= 0 and given[0] <= 1) return 0;
    return snprintf(message, error_size, "bias: expected 0 to 1, got %f", given[0]); // a message, and a code that is not 0
}

fn init(coin: *Coin, given: [*]const f64, _: [*]u8) callconv(.c) c_int {
    coin.bias = given[0];
    return 0;
}

fn reset(coin: *Coin, random: *Random, _: [*]const f64, _: [*]u8) callconv(.c) c_int {
    coin.side = @intFromBool(random.uniform(random) < coin.bias);
    return 0;
}

fn step(coin: *Coin, action: [*]const *const anyopaque, random: *Random, outcome: *Outcome, _: [*]u8) callconv(.c) c_int {
    const guess: *const i64 = @ptrCast(@alignCast(action[0]));
    coin.side = @intFromBool(random.uniform(random) < coin.bias);
    outcome.reward = if (guess.* == coin.side) 1 else 0;
    return 0;
}

fn observe(coin: *const Coin, observation: [*]const *anyopaque, _: ?[*]const *anyopaque, _: [*]u8) callconv(.c) c_int {
    const out: *i64 = @ptrCast(@alignCast(observation[0]));
    out.* = coin.side;
    return 0;
}

const functions = Env(Coin){
    .name = "Coin",
    .never_blocks = 1,
    .settings = &settings,
    .setting_count = settings.len,
    .spaces = .{ .observation = @ptrCast(&side), .observation_count = 1, .action = @ptrCast(&side), .action_count = 1 },
    .describe = describe,
    .init = init,
    .reset = reset,
    .step = step,
    .observe = observe,
};

export fn stepmill_c_env() *const Env(Coin) {
    return &functions;
}

// ---- stepmill/c_env.h, in Zig: the same for every env -----------------------------------------

const error_size = 1024;
const real = 2;
const discrete = 1;
const int64 = 7;

const Setting = extern struct { key: [*:0]const u8, kind: i32, value: f64 };

const Array = extern struct {
    name: ?[*:0]const u8 = null,
    kind: i32,
    dtype: i32,
    rank: i32 = 0,
    shape: ?[*]const i64 = null,
    low: f64 = 0,
    high: f64 = 0,
    lows: ?[*]const f64 = null,
    highs: ?[*]const f64 = null,
};

const Spaces = extern struct {
    observation: [*]const Array,
    action: [*]const Array,
    info: ?[*]const Array = null,
    observation_count: i32,
    action_count: i32,
    info_count: i32 = 0,
};

const Random = extern struct {
    uniform: *const fn (*Random) callconv(.c) f64,
    integer: *const fn (*Random, i64, i64) callconv(.c) i64,
    normal: *const fn (*Random) callconv(.c) f64,
};

const Outcome = extern struct { reward: f64, terminated: u8, truncated: u8 };

const Put = *const fn (*anyopaque, *const anyopaque, i64) callconv(.c) void;

fn Env(comptime E: type) type {
    return extern struct {
        version: u32 = 1,
        size: u32 = @sizeOf(@This()),
        name: [*:0]const u8,
        env_size: i64 = @sizeOf(E),
        never_blocks: i32 = 0,
        setting_count: i32 = 0,
        settings: ?[*]const Setting = null,
        options: ?[*:null]const ?[*:0]const u8 = null,
        spaces: Spaces,
        describe: ?*const fn ([*]const f64, *Spaces, [*]u8) callconv(.c) c_int = null,
        init: *const fn (*E, [*]const f64, [*]u8) callconv(.c) c_int,
        reset: *const fn (*E, *Random, [*]const f64, [*]u8) callconv(.c) c_int,
        step: *const fn (*E, [*]const *const anyopaque, *Random, *Outcome, [*]u8) callconv(.c) c_int,
        observe: *const fn (*const E, [*]const *anyopaque, ?[*]const *anyopaque, [*]u8) callconv(.c) c_int,
        step_many: ?*const fn (i32, [*]const *E, [*]const *const anyopaque, [*]const *Random, [*]Outcome) callconv(.c) void = null,
        save: ?*const fn (*const E, *anyopaque, Put, [*]u8) callconv(.c) c_int = null,
        load: ?*const fn (*E, *const anyopaque, i64, [*]u8) callconv(.c) c_int = null,
        close: ?*const fn (*E) callconv(.c) void = null,
    };
}
