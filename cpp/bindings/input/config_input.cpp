#include "bindings/python/numpy_api.h"

#include "bindings/input/config_input.h"

#include <cmath>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/python/errors.h"
#include "core/env_libraries.h"
#include "envs/catalogue.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

nb::object to_python(const ConfigValue& value) {
  return std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, value);
}

// Text for an env, which reads it as a C string.
std::optional<std::string> utf8(nb::handle str) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(str.ptr(), &size);
  if (!text) {
    forget_error();
    return std::nullopt;
  }
  std::string out(text, static_cast<std::size_t>(size));
  return out.find('\0') == std::string::npos ? std::optional(std::move(out)) : std::nullopt;
}

// Converts `given` to the type of the default.
ConfigValue convert(const std::string& key, const ConfigValue& otherwise, nb::handle given) {
  const auto reject = [&](const char* expected) {
    raise("ConfigError", "config key '" + key + "': expected " + expected + ", got " +
                             text_of(nb::repr(given)));
  };
  PyObject* raw = given.ptr();
  switch (otherwise.index()) {
    case SM_FLAG: {
      if (!PyBool_Check(raw) && !PyArray_IsScalar(raw, Bool)) reject("True or False");
      return PyObject_IsTrue(raw) != 0;
    }
    case SM_INTEGER: {
      if (PyBool_Check(raw) || !PyIndex_Check(raw)) reject("a whole number");
      nb::object index = nb::steal(PyNumber_Index(raw));
      const long long number = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
      if (PyErr_Occurred()) {
        forget_error();
        reject("a whole number of at most 64 bits");
      }
      return static_cast<std::int64_t>(number);
    }
    case SM_REAL: {
      const double number = PyFloat_AsDouble(raw);
      if (PyErr_Occurred() || PyBool_Check(raw)) {
        forget_error();
        reject("a number");
      }
      return number;
    }
    case SM_TEXT: {
      if (given.is_none()) return std::string();
      const auto read_text = [&](nb::handle str) {
        std::optional<std::string> text = utf8(str);
        if (!text) reject("text without null characters that UTF-8 can hold");
        return *std::move(text);
      };
      if (PyUnicode_Check(raw)) return read_text(given);
      // A list of strings: its lines.
      nb::object items = nb::steal(PySequence_Tuple(raw));
      if (!items.is_valid()) {
        forget_error();
        reject("a string, a list of strings or None");
      }
      std::string lines;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
        nb::handle item = PyTuple_GET_ITEM(items.ptr(), i);
        if (!PyUnicode_Check(item.ptr())) reject("a string, a list of strings or None");
        if (i) lines += '\n';
        lines += read_text(item);
      }
      return lines;
    }
    default: {
      const auto count = std::get<Reals>(otherwise).size();
      nb::object items = nb::steal(PySequence_Tuple(raw));
      if (!items.is_valid() || PyUnicode_Check(raw)) {
        forget_error();
        reject("a sequence of numbers");
      }
      Reals out;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
        out.push_back(PyFloat_AsDouble(PyTuple_GET_ITEM(items.ptr(), i)));
        if (PyErr_Occurred()) {
          forget_error();
          reject("a sequence of numbers");
        }
      }
      if (out.size() != count) reject(("a sequence of " + std::to_string(count) + " numbers").c_str());
      return out;
    }
  }
}

nb::dict leaf_to_python(const Leaf& leaf) {
  nb::dict out;
  out["name"] = leaf.name;
  out["kind"] = static_cast<int>(leaf.kind);
  out["dtype"] = name_of(leaf.dtype);
  out["shape"] = nb::tuple(nb::cast(leaf.shape));
  out["low"] = leaf.low;
  out["high"] = leaf.high;
  return out;
}

// Of the bounds in Python's integers, each is exactly what it says.
void set_exact_bounds(std::vector<std::int64_t>& bounds, nb::handle given) {
  for (std::size_t i = 0; i < bounds.size(); ++i)
    if (nb::object one = given[i]; PyLong_CheckExact(one.ptr()))
      bounds[i] = static_cast<std::int64_t>(PyLong_AsUnsignedLongLongMask(one.ptr()));
}

Leaf leaf_from_python(nb::handle leaf) {
  const auto dtype = nb::cast<std::string>(leaf["dtype"]);
  int type = 0;
  while (type < kDTypeCount && dtype != name_of(static_cast<DType>(type))) ++type;
  if (type == kDTypeCount) raise("ConfigError", "dtype " + dtype + " is not supported in a batch");
  Leaf out{text_of(leaf["name"]),
           static_cast<LeafKind>(nb::cast<int>(leaf["kind"])),
           static_cast<DType>(type),
           nb::cast<std::vector<std::int64_t>>(leaf["shape"]),
           nb::cast<std::vector<double>>(leaf["low"]),
           nb::cast<std::vector<double>>(leaf["high"]),
           nb::cast<std::int32_t>(leaf["player_kind"])};
  set_whole_bounds(out);
  set_exact_bounds(out.whole_low, leaf["low"]);
  set_exact_bounds(out.whole_high, leaf["high"]);
  return out;
}

// numpy's limit is 32 or 64, depending on its version; the rows of a batch need one more dimension.
constexpr std::size_t kMostDimensions = 32;
static_assert(kMostDimensions < NPY_MAXDIMS);

void check_dimensions(const EnvSpec& spec) {
  for (const auto* leaves : {&spec.observation, &spec.action, &spec.info})
    for (const Leaf& leaf : *leaves)
      if (leaf.shape.size() > kMostDimensions)
        raise("ConfigError", "a space of " + std::to_string(leaf.shape.size()) + " dimensions: expected at most " +
                                 std::to_string(kMostDimensions));
}

Config defaults_of(const sm_env_table& table) {
  try {
    return default_config(table);
  } catch (const std::invalid_argument& error) {
    raise("ConfigError", error.what());
  }
}

}  // namespace

const sm_env_table* find_table(nb::handle name) {
  const auto wanted = nb::cast<std::string>(name);
  for (const sm_env_table* table : catalogue())
    if (wanted == table->name) {
      check_abi(*table);
      return table;
    }
  if (const sm_env_table* loaded = find_loaded_env(wanted)) return loaded;
  raise("UnknownEnvError", "no env class '" + wanted + "' in this build");
}

nb::dict default_config_of(nb::handle name) {
  nb::dict out;
  const Config config = defaults_of(*find_table(name));
  for (const ConfigItem& item : config.items())
    out[item.key.c_str()] = to_python(item.value);
  return out;
}

Config read_config(const sm_env_table& table, nb::handle given) {
  std::vector<ConfigItem> items = defaults_of(table).items();
  // A copy: reading a value may run code that changes the dict.
  for (auto [key, value] : nb::borrow<nb::dict>(owned(PyDict_Copy(given.ptr())))) {
    const std::string name = text_of(nb::str(key));
    bool known = false;
    for (ConfigItem& item : items) {
      if (item.key != name) continue;
      item.value = convert(name, item.value, value);
      known = true;
    }
    if (!known) raise("UnknownConfigError", "unknown config key '" + name + "'");
  }
  return Config(std::move(items));
}

// Our own Python code made these values, so a wrong type is a bug and not the user's mistake.
Config read_simulator(nb::handle values) {
  std::vector<ConfigItem> items;
  if (values.is_none()) return Config();
  for (auto [key, value] : nb::borrow<nb::dict>(values)) {
    ConfigValue read;
    if (PyBool_Check(value.ptr())) read = nb::cast<bool>(value);
    else if (PyLong_Check(value.ptr())) read = nb::cast<std::int64_t>(value);
    else if (PyFloat_Check(value.ptr())) read = nb::cast<double>(value);
    else if (PyUnicode_Check(value.ptr())) read = nb::cast<std::string>(value);
    else read = nb::cast<Reals>(value);
    items.push_back({nb::cast<std::string>(key), std::move(read)});
  }
  return Config(std::move(items));
}

std::vector<ConfigRun> read_runs(const sm_env_table& table, nb::handle configs, nb::handle simulators) {
  std::vector<ConfigRun> runs;
  PyObject* last = nullptr;  // thousands of envs usually share one dict
  for (nb::handle config : configs) {
    const std::size_t index = runs.size();
    if (!simulators.is_none())
      runs.push_back({read_config(table, config), 1, read_simulator(simulators[index].attr("values")())});
    else if (config.ptr() == last)
      runs.back().count += 1;
    else
      runs.push_back({read_config(table, config)});
    last = config.ptr();
  }
  return runs;
}

std::unique_ptr<EnvSet> build_envs(const sm_env_table& table, const std::vector<ConfigRun>& runs, std::int32_t first_id) {
  try {
    return std::make_unique<EnvSet>(table, runs, first_id);
  } catch (const BuildError& error) {
    nb::object type = nb::module_::import_("stepmill.errors").attr("EnvError");
    raise_again(type(to_text(error.what()), "env_id"_a = error.env, "phase"_a = "constructor"));
  }
}

EnvSpec read_native_spec(const sm_env_table& table, const Config& config, const Config& simulator) {
  EnvSpec spec;
  try {
    spec = describe(table, config, simulator);
  } catch (const std::invalid_argument& error) {
    raise("ConfigError", error.what());
  }
  check_dimensions(spec);
  return spec;
}

nb::dict describe_class(nb::handle name, nb::handle config, nb::handle simulator) {
  const sm_env_table& table = *find_table(name);
  const EnvSpec spec = read_native_spec(table, read_config(table, config), read_simulator(simulator));
  const auto leaves = [](const std::vector<Leaf>& from) {
    nb::list out;
    for (const Leaf& leaf : from) out.append(leaf_to_python(leaf));
    return out;
  };
  nb::dict out;
  out["observation"] = leaves(spec.observation);
  out["action"] = leaves(spec.action);
  out["info"] = leaves(spec.info);
  out["observation_tree"] = static_cast<int>(spec.observation_tree);
  out["action_tree"] = static_cast<int>(spec.action_tree);
  out["max_num_players"] = spec.max_num_players;
  out["object_bytes"] = table.object_bytes;
  out["object_alignment"] = table.object_alignment;
  out["is_plain_memory"] = table.memory != nullptr;
  return out;
}

EnvSpec read_spec(nb::handle spec) {
  EnvSpec out;
  for (nb::handle leaf : spec["observation"]) out.observation.push_back(leaf_from_python(leaf));
  for (nb::handle leaf : spec["action"]) out.action.push_back(leaf_from_python(leaf));
  for (nb::handle leaf : spec["info"]) out.info.push_back(leaf_from_python(leaf));
  out.max_num_players = nb::cast<std::int32_t>(spec["num_players"]);
  out.player_kinds = nb::cast<std::vector<std::int32_t>>(spec["player_kinds"]);
  out.players_vary = nb::cast<bool>(spec["players_vary"]);
  check_dimensions(out);
  return out;
}

sm_reset_request read_options(const sm_env_table& table, nb::handle options) {
  sm_reset_request request{};
  if (options.is_none()) return request;
  // A copy: reading a value may run code that changes the dict.
  for (auto [key, value] : nb::borrow<nb::dict>(owned(PyDict_Copy(options.ptr())))) {
    const std::string name = text_of(nb::str(key));
    int index = 0;
    while (table.reset_options[index] && name != table.reset_options[index]) ++index;
    if (!table.reset_options[index]) {
      std::string known;
      for (int i = 0; table.reset_options[i]; ++i)
        known += std::string(i ? ", " : "") + table.reset_options[i];
      raise("ResetOptionError", "unknown reset option '" + name + "', expected one of: " +
                                    (known.empty() ? "none (this env takes no options)" : known));
    }
    const double number = PyFloat_AsDouble(value.ptr());
    const bool failed = PyErr_Occurred() != nullptr;
    forget_error();
    if (failed || std::isnan(number))
      raise("ResetOptionError", "reset option '" + name + "': expected a number, got " +
                                    (failed ? describe_object(value) : "nan"));
    request.option[index] = number;
    request.option_mask |= 1u << index;
  }
  char error[SM_ERROR_CAPACITY] = "";
  if (table.check_options(&table, &request, error) != 0) raise("ResetOptionError", error);
  return request;
}

}  // namespace stepmill
