#include "core/foreign_env.h"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include "core/env_set.h"
#include "core/table_of.h"

namespace stepmill {
namespace {

// The memory of all envs begins at a multiple of kAlignment, and that of each at one of kSpacing. An env that needs
// more has a size that is a multiple of it, as every type of C has. Not more: small envs are to stay in the cache.
constexpr std::size_t kAlignment = 64, kSpacing = 16;

// The engine's generator as C functions see it.
struct Random : stepmill_random {
  Rng* rng = nullptr;

  Random() : stepmill_random{draw_uniform, draw_integer, draw_normal} {}

  stepmill_random* of(Rng& source) {
    rng = &source;
    return this;
  }

 private:
  static Rng& behind(stepmill_random* self) { return *static_cast<Random*>(self)->rng; }
  static double draw_uniform(stepmill_random* self) { return behind(self).random(); }
  static std::int64_t draw_integer(stepmill_random* self, std::int64_t low, std::int64_t high) {
    return low < high ? behind(self).integers(low, high) : low;
  }
  static double draw_normal(stepmill_random* self) { return behind(self).normal(); }
};

[[noreturn, gnu::noinline, gnu::cold]] void report(int code, char* error) {
  error[STEPMILL_ERROR_SIZE - 1] = '\0';
  throw std::runtime_error(error[0] != '\0' ? std::string(error) : "it returned " + std::to_string(code));
}

// Calls a function that says with its result whether it failed. It must not throw, as `c_env.h` says: so that the loop
// around it need not keep anything for that case.
template <class F>
[[gnu::always_inline]] inline void call(F function) {
  char error[STEPMILL_ERROR_SIZE];
  error[0] = '\0';
  const int code = [&]() noexcept { return function(error); }();
  if (code != 0) [[unlikely]] report(code, error);
}

std::vector<double> settings_of(const Config& config) {
  std::vector<double> settings;
  for (const ConfigItem& item : config.items()) {
    if (const bool* flag = std::get_if<bool>(&item.value))
      settings.push_back(*flag);
    else if (const std::int64_t* integer = std::get_if<std::int64_t>(&item.value))
      settings.push_back(static_cast<double>(*integer));
    else
      settings.push_back(std::get<double>(item.value));
  }
  return settings;
}

// An env: its functions, and its memory, which the storage of the pool owns. `kMany`: it has `step_many`.
template <bool kMany>
class ForeignEnv {
 public:
  ForeignEnv(const stepmill_env& functions, std::byte* memory, const std::vector<double>& settings)
      : functions_(functions), memory_(memory) {
    call([&](char* error) { return functions_.init(memory_, settings.data(), error); });
  }
  ForeignEnv(const ForeignEnv&) = delete;
  ForeignEnv& operator=(const ForeignEnv&) = delete;
  ~ForeignEnv() {
    if (functions_.close) functions_.close(memory_);
  }

  // Not called: `foreign_table` describes them, from what it was given.
  static EnvSpec spec(const Config&) { throw std::logic_error("described elsewhere"); }

  void reset(Rng& rng, const Options& options) {
    double given[STEPMILL_MOST_OPTIONS];
    for (int i = 0; i < STEPMILL_MOST_OPTIONS; ++i) given[i] = options.get(i, std::numeric_limits<double>::quiet_NaN());
    call([&](char* error) { return functions_.reset(memory_, random_.of(rng), given, error); });
  }

  // Inlined into the stepper's loop, as those of a class are: otherwise rows and outcomes go through memory.
  [[gnu::always_inline]] Outcome step(const ActionRow& action, Rng& rng) {
    const void* rows[STEPMILL_MOST_ARRAYS];
    rows[0] = action.get<std::byte>(0);
    if (has_more_actions_) [[unlikely]] add_rows(action, rows);
    stepmill_result result{};
    call([&](char* error) { return step_(memory_, rows, random_.of(rng), &result, error); });
    return outcome_of(result);
  }

  [[gnu::always_inline]] void observe(const Row& row) const {
    void* observation[STEPMILL_MOST_ARRAYS];
    void* info[STEPMILL_MOST_ARRAYS];
    observation[0] = row.observation<std::byte>(0);
    if (shows_more_) [[unlikely]] add_rows(row, observation, info);
    call([&](char* error) { return observe_(memory_, observation, info, error); });
  }

  static void step_many(Turns<ForeignEnv>& turns) noexcept
    requires kMany
  {
    constexpr int kMost = Turns<ForeignEnv>::kMost;
    static_assert(kMost <= STEPMILL_MOST_TURNS);
    if (turns.size() == 0) return;
    const ForeignEnv& first = turns.env(0);
    void* envs[kMost];
    const void* actions[kMost * STEPMILL_MOST_ARRAYS];
    stepmill_random* randoms[kMost];
    stepmill_result results[kMost] = {};
    const int leaves = first.functions_.spaces.action_count;
    for (int i = 0; i < turns.size(); ++i) {
      envs[i] = turns.env(i).memory_;
      randoms[i] = turns.env(i).random_.of(turns.rng(i));
      const ActionRow action = turns.action(i);
      for (int leaf = 0; leaf < leaves; ++leaf) actions[i * leaves + leaf] = action.get<std::byte>(leaf);
    }
    first.functions_.step_many(turns.size(), envs, actions, randoms, results);
    for (int i = 0; i < turns.size(); ++i) turns.outcome(i) = outcome_of(results[i]);
  }

  void save(Writer& to) const {
    if (functions_.save)
      call([&](char* error) { return functions_.save(memory_, &to, put, error); });
    else
      to.put_array(memory_, static_cast<std::size_t>(functions_.env_size));
  }
  void load(Reader& from) {
    if (functions_.load) {
      std::vector<std::byte> bytes(from.left());
      from.take_array(bytes.data(), bytes.size());
      call([&](char* error) { return functions_.load(memory_, bytes.data(), std::ssize(bytes), error); });
    } else {
      from.take_array(memory_, static_cast<std::size_t>(functions_.env_size));
    }
  }

 private:
  // The arrays after the first. Out of line, and given copies: so that the loop around it has its values in registers.
  [[gnu::noinline]] void add_rows(ActionRow action, const void** rows) const {
    for (int leaf = 1; leaf < functions_.spaces.action_count; ++leaf) rows[leaf] = action.get<std::byte>(leaf);
  }
  [[gnu::noinline]] void add_rows(Row row, void** observation, void** info) const {
    for (int leaf = 1; leaf < functions_.spaces.observation_count; ++leaf)
      observation[leaf] = row.observation<std::byte>(leaf);
    for (int leaf = 0; leaf < functions_.spaces.info_count; ++leaf) info[leaf] = row.info<std::byte>(leaf);
  }

  static Outcome outcome_of(const stepmill_result& result) {
    return {result.reward, result.terminated != 0, result.truncated != 0};
  }
  static void put(void* sink, const void* bytes, std::int64_t count) {
    static_cast<Writer*>(sink)->put_array(static_cast<const std::byte*>(bytes), static_cast<std::size_t>(count));
  }

  const stepmill_env& functions_;
  std::byte* memory_;
  // What every step needs, from `functions_`: one load less for each.
  decltype(stepmill_env::step) step_ = functions_.step;
  decltype(stepmill_env::observe) observe_ = functions_.observe;
  Random random_;
  bool has_more_actions_ = functions_.spaces.action_count > 1;
  bool shows_more_ = functions_.spaces.observation_count + functions_.spaces.info_count > 1;
};

// The envs of a pool, and one block of memory for all of them.
template <bool kMany>
class ForeignStepper {
 public:
  ForeignStepper(const stepmill_env& functions, std::int32_t count)
      : functions_(functions),
        stride_((static_cast<std::size_t>(functions.env_size) + kSpacing - 1) / kSpacing * kSpacing),
        memory_(allocated(stride_ * static_cast<std::size_t>(count))),
        envs_(count) {}

  void build(std::int32_t index, const std::vector<double>& settings) {
    envs_.emplace(index, functions_, memory_.get() + static_cast<std::size_t>(index) * stride_, settings);
  }
  Stepper<ForeignEnv<kMany>>& envs() { return envs_; }
  const Stepper<ForeignEnv<kMany>>& envs() const { return envs_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  static Memory allocated(std::size_t bytes) {
    const std::size_t least = (bytes / kAlignment + 1) * kAlignment;  // what aligned_alloc takes
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, least));
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, least);
    return Memory(memory);
  }

  const stepmill_env& functions_;
  std::size_t stride_;
  Memory memory_;
  Stepper<ForeignEnv<kMany>> envs_;  // goes first: `close` may look at the memory
};

const stepmill_env& functions_of(const sm_env_table* table) {
  return *static_cast<const stepmill_env*>(table->context);
}

std::vector<ConfigItem> configuration_of(const stepmill_env& functions) {
  std::vector<ConfigItem> items;
  for (int i = 0; i < functions.setting_count; ++i) {
    const stepmill_setting& setting = functions.settings[i];
    if (setting.type == STEPMILL_FLAG)
      items.push_back({setting.key, setting.value != 0.0});
    else if (setting.type == STEPMILL_INTEGER)
      items.push_back({setting.key, static_cast<std::int64_t>(setting.value)});
    else
      items.push_back({setting.key, setting.value});
  }
  return items;
}

void check_arrays(const char* what, const stepmill_array* arrays, std::int32_t count, std::int32_t least) {
  const std::string place = std::string(what) + ": ";
  if (count < least || count > STEPMILL_MOST_ARRAYS || (count > 0 && !arrays))
    throw std::invalid_argument(place + "expected " + std::to_string(least) + " to " +
                                std::to_string(STEPMILL_MOST_ARRAYS) + " arrays, got " + std::to_string(count));
  for (int i = 0; i < count; ++i) {
    const stepmill_array& array = arrays[i];
    if (array.kind < STEPMILL_BOX || array.kind > STEPMILL_MULTI_BINARY)
      throw std::invalid_argument(place + "expected a kind from 0 to 3, got " + std::to_string(array.kind));
    if (array.dtype < 0 || array.dtype >= kDTypeCount)
      throw std::invalid_argument(place + "expected a dtype from 0 to 11, got " + std::to_string(array.dtype));
    if (array.kind == STEPMILL_DISCRETE && (array.dtype != STEPMILL_INT64 || array.rank != 0))
      throw std::invalid_argument(place + "expected a DISCRETE one to be a single INT64, got dtype " +
                                  std::to_string(array.dtype) + " and rank " + std::to_string(array.rank));
    if (array.rank < 0 || array.rank > 32 || (array.rank > 0 && !array.shape))
      throw std::invalid_argument(place + "expected a rank from 0 to 32 and a shape, got " +
                                  std::to_string(array.rank));
    if (!array.lows != !array.highs) throw std::invalid_argument(place + "expected both lows and highs, or neither");
    std::int64_t elements = 1;  // bounded before `lows` and `highs` are read
    for (int axis = 0; axis < array.rank; ++axis)
      if (array.shape[axis] < 0 || __builtin_mul_overflow(elements, array.shape[axis], &elements) ||
          elements > (std::int64_t{1} << 40))
        throw std::invalid_argument(place + "a shape with " + std::to_string(array.shape[axis]) + " in it");
  }
}

std::vector<Leaf> leaves_of(const char* what, const stepmill_array* arrays, std::int32_t count, std::int32_t least) {
  check_arrays(what, arrays, count, least);
  std::vector<Leaf> leaves;
  for (int i = 0; i < count; ++i) {
    const stepmill_array& array = arrays[i];
    Leaf leaf{array.name ? array.name : count > 1 ? std::to_string(i) : "", static_cast<LeafKind>(array.kind),
              static_cast<DType>(array.dtype), {array.shape, array.shape + array.rank}, {array.low}, {array.high}};
    if (array.lows && array.highs) {
      leaf.low.assign(array.lows, array.lows + leaf.elements());
      leaf.high.assign(array.highs, array.highs + leaf.elements());
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

Tree tree_of(const stepmill_array* arrays, std::int32_t count) {
  if (count > 0 && arrays[0].name) return Tree::kDict;
  return count == 1 ? Tree::kSingle : Tree::kTuple;
}

EnvSpec spec_of(const stepmill_env& functions, const Config& config) {
  stepmill_spaces spaces = functions.spaces;
  static std::mutex mutex;  // what it points to stays until its next call
  const std::lock_guard lock(mutex);
  if (functions.describe) {
    const std::vector<double> settings = settings_of(config);
    call([&](char* error) { return functions.describe(settings.data(), &spaces, error); });
    const stepmill_spaces& usual = functions.spaces;
    if (spaces.observation_count != usual.observation_count || spaces.action_count != usual.action_count ||
        spaces.info_count != usual.info_count)
      throw std::invalid_argument("describe: the number of arrays must be that of `spaces`; shapes may differ");
  }
  EnvSpec spec;
  spec.observation = leaves_of("observation", spaces.observation, spaces.observation_count, 1);
  spec.action = leaves_of("action", spaces.action, spaces.action_count, 1);
  spec.info = leaves_of("info", spaces.info, spaces.info_count, 0);
  spec.observation_tree = tree_of(spaces.observation, spaces.observation_count);
  spec.action_tree = tree_of(spaces.action, spaces.action_count);
  return spec;
}

// A copy of the memory is a copy of the env unless it holds something else, which is what `close` is for.
bool can_save(const stepmill_env& functions) { return functions.save || !functions.close; }

constexpr std::int64_t kSavedByEngine = sizeof(sm_random_state) + sizeof(std::int64_t);  // see Stepper::save

// What depends on whether there is `step_many`.
template <bool kMany>
void fill(sm_env_table& t) {
  using Envs = ForeignStepper<kMany>;
  t.allocate = [](const sm_env_table* table, std::int32_t count) -> void* {
    try {
      return new Envs(functions_of(table), count);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  };
  t.build = [](void* envs, std::int32_t first, std::int32_t last, sm_values config, sm_values, char* error) {
    std::int32_t index = first;
    (void)guarded(error, [&] {
      const std::vector<double> settings = settings_of(from_c(config));
      for (; index < last; ++index) static_cast<Envs*>(envs)->build(index, settings);
    });
    return index;
  };
  t.release = [](void* envs) { delete static_cast<Envs*>(envs); };
  t.advance = [](void* envs, std::int32_t first_id, const sm_job* job) {
    return static_cast<int>(static_cast<Envs*>(envs)->envs().advance(first_id, *job));
  };
  t.random_state = [](const void* envs, std::int32_t index, sm_random_state* out) {
    *out = static_cast<const Envs*>(envs)->envs().rng(index).state();
  };
  t.picture = [](const void* envs, std::int32_t index, std::int64_t* resets, void*, void (*)(void*, double), char*) {
    *resets = static_cast<const Envs*>(envs)->envs().resets(index);
    return 0;
  };
  if (!can_save(functions_of(&t))) return;
  if (!functions_of(&t).save) t.state_bytes = kSavedByEngine + functions_of(&t).env_size;
  t.save = [](const void* envs, std::int32_t index, void* sink, void (*put)(void*, const void*, std::int64_t),
              char* error) {
    return guarded(error, [&] {
      Writer to(sink, put);
      static_cast<const Envs*>(envs)->envs().save(index, to);
    });
  };
  t.load = [](void* envs, std::int32_t index, const void* bytes, std::int64_t count, char* error) {
    return guarded(error, [&] { static_cast<Envs*>(envs)->envs().load(index, Reader(bytes, count)); });
  };
}

// A copy of what a library gave, in the present size: an earlier one knows less of the end.
std::unique_ptr<stepmill_env> present(const stepmill_env& given) {
  constexpr std::size_t first_size = offsetof(stepmill_env, close) + sizeof(stepmill_env::close);  // of version 1
  if (given.version != STEPMILL_C_ENV_VERSION || given.size < first_size || given.size > sizeof(stepmill_env))
    throw std::runtime_error("a stepmill_env of version " + std::to_string(given.version) + " and size " +
                             std::to_string(given.size) + ", expected version " +
                             std::to_string(STEPMILL_C_ENV_VERSION) + " and size " + std::to_string(first_size) +
                             " to " + std::to_string(sizeof(stepmill_env)) +
                             ": compile it with the stepmill/c_env.h of this version of stepmill");
  auto functions = std::make_unique<stepmill_env>();
  std::memcpy(functions.get(), &given, given.size);
  return functions;
}

void check_setting(const stepmill_setting& setting) {
  if (!setting.key) throw std::runtime_error("a setting of its stepmill_env has no key");
  const std::string place = std::string("setting '") + setting.key + "': ";
  if (setting.type < STEPMILL_FLAG || setting.type > STEPMILL_REAL)
    throw std::runtime_error(place + "expected a type from 0 to 2, got " + std::to_string(setting.type));
  if (setting.type == STEPMILL_INTEGER && !(std::abs(setting.value) <= 0x1p53))
    throw std::runtime_error(place + "expected a whole number, got " + std::to_string(setting.value));
}

void check_functions(const stepmill_env& functions) {
  const auto need = [](bool there, const char* what) {
    if (!there) throw std::runtime_error(std::string("its stepmill_env has no ") + what);
  };
  need(functions.name, "name");
  need(functions.init, "init");
  need(functions.reset, "reset");
  need(functions.step, "step");
  need(functions.observe, "observe");
  need(!functions.save == !functions.load, "load to go with its save, or the other way round");
  need(functions.setting_count == 0 || (functions.setting_count > 0 && functions.settings),
       "settings to go with its setting_count");
  for (int i = 0; i < functions.setting_count; ++i) check_setting(functions.settings[i]);
  if (functions.env_size < 0 || functions.env_size > (std::int64_t{1} << 40))
    throw std::runtime_error("its env_size is " + std::to_string(functions.env_size) + " bytes");
}

}  // namespace

const sm_env_table* foreign_table(const stepmill_env& given) {
  static constexpr const char* kNoOptions[] = {nullptr};
  auto owned = present(given);
  const stepmill_env& functions = *owned;
  check_functions(functions);
  auto table = std::make_unique<sm_env_table>();
  sm_env_table& t = *table;
  t.abi_version = SM_ABI_VERSION;
  t.size = sizeof(sm_env_table);
  t.name = functions.name;
  t.context = &functions;
  t.never_blocks = functions.never_blocks != 0;
  t.configuration = [](const sm_env_table* self, void* sink, void (*put)(void*, const sm_value*), char* error) {
    return guarded(error, [&] {
      for (const ConfigItem& item : configuration_of(functions_of(self))) {
        const sm_value value = to_c(item);
        put(sink, &value);
      }
    });
  };
  t.reset_options = functions.options ? functions.options : kNoOptions;
  t.check_options = [](const sm_env_table*, const sm_reset_request*, char*) { return 0; };
  t.describe = [](const sm_env_table* self, sm_values config, sm_values, sm_description* out, void* sink,
                  void (*put)(void*, const sm_leaf*), char* error) {
    return guarded(error, [&] { put_spec(spec_of(functions_of(self), from_c(config)), out, sink, put); });
  };
  t.connect = [](void*, std::int32_t, sm_values, char* error) {
    return guarded(error, [] { throw std::logic_error("this env has no simulator"); });
  };
  if (functions.step_many)
    fill<true>(t);
  else
    fill<false>(t);
  check_abi(t);
  (void)owned.release();  // both for good: a pool may refer to them
  return table.release();
}

}  // namespace stepmill
