#include "bindings/numpy_api.h"

#include "bindings/config_input.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/errors.h"
#include "envs/catalogue.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

nb::object to_python(const ConfigValue& value) {
  return std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, value);
}

// `given` as the type that the default has.
ConfigValue convert(const std::string& key, const ConfigValue& otherwise, nb::handle given) {
  const auto reject = [&](const char* expected) {
    raise("ConfigError", "config key '" + key + "': expected " + expected + ", got " +
                             nb::repr(given).c_str());
  };
  PyObject* raw = given.ptr();
  switch (otherwise.index()) {
    case SM_FLAG: {
      if (!PyBool_Check(raw) && !PyArray_IsScalar(raw, Bool)) reject("True or False");
      return PyObject_IsTrue(raw) != 0;
    }
    case SM_INTEGER: {
      if (PyBool_Check(raw) || !PyIndex_Check(raw)) reject("a whole number");
      const long long number = PyLong_AsLongLong(nb::steal(PyNumber_Index(raw)).ptr());
      if (PyErr_Occurred()) {
        PyErr_Clear();
        reject("a whole number of at most 64 bits");
      }
      return static_cast<std::int64_t>(number);
    }
    case SM_REAL: {
      const double number = PyFloat_AsDouble(raw);
      if (PyErr_Occurred() || PyBool_Check(raw)) {
        PyErr_Clear();
        reject("a number");
      }
      return number;
    }
    case SM_TEXT: {
      if (given.is_none()) return std::string();
      if (PyUnicode_Check(raw)) return nb::cast<std::string>(given);
      // A list of strings: its lines.
      nb::object items = nb::steal(PySequence_Fast(raw, ""));
      if (!items.is_valid()) {
        PyErr_Clear();
        reject("a string, a list of strings or None");
      }
      std::string lines;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
        nb::handle item = PySequence_Fast_GET_ITEM(items.ptr(), i);
        if (!PyUnicode_Check(item.ptr())) reject("a string, a list of strings or None");
        if (i) lines += '\n';
        lines += nb::cast<std::string>(item);
      }
      return lines;
    }
    default: {
      const auto count = std::get<Reals>(otherwise).size();
      nb::object items = nb::steal(PySequence_Fast(raw, ""));
      if (!items.is_valid() || PyUnicode_Check(raw)) {
        PyErr_Clear();
        reject("a sequence of numbers");
      }
      Reals out;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
        out.push_back(PyFloat_AsDouble(PySequence_Fast_GET_ITEM(items.ptr(), i)));
        if (PyErr_Occurred()) {
          PyErr_Clear();
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

Leaf leaf_from_python(nb::handle leaf) {
  const auto dtype = nb::cast<std::string>(leaf["dtype"]);
  int type = 0;
  while (type < kDTypeCount && dtype != name_of(static_cast<DType>(type))) ++type;
  if (type == kDTypeCount) raise("ConfigError", "dtype " + dtype + " cannot be held in a batch");
  return {nb::cast<std::string>(leaf["name"]),
          static_cast<LeafKind>(nb::cast<int>(leaf["kind"])),
          static_cast<DType>(type),
          nb::cast<std::vector<std::int64_t>>(leaf["shape"]),
          nb::cast<std::vector<double>>(leaf["low"]),
          nb::cast<std::vector<double>>(leaf["high"])};
}

}  // namespace

nb::list env_classes() {
  nb::list out;
  for (const sm_env_table* table : catalogue()) out.append(table->name);
  return out;
}

const sm_env_table* find_table(nb::handle name) {
  const auto wanted = nb::cast<std::string>(name);
  for (const sm_env_table* table : catalogue())
    if (wanted == table->name) {
      check_abi(*table);
      return table;
    }
  raise("UnknownEnvError", "no env class '" + wanted + "' in this build");
}

nb::dict default_config_of(nb::handle name) {
  nb::dict out;
  const Config config = default_config(*find_table(name));
  for (const ConfigItem& item : config.items())
    out[item.key.c_str()] = to_python(item.value);
  return out;
}

nb::list reset_options_of(nb::handle name) {
  nb::list out;
  const sm_env_table* table = find_table(name);
  for (int i = 0; table->reset_options[i]; ++i) out.append(table->reset_options[i]);
  return out;
}

Config read_config(const sm_env_table& table, nb::handle given) {
  std::vector<ConfigItem> items = default_config(table).items();
  for (auto [key, value] : nb::cast<nb::dict>(nb::borrow(given))) {
    const auto name = nb::cast<std::string>(key);
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

nb::dict describe_class(nb::handle name, nb::handle config) {
  const sm_env_table& table = *find_table(name);
  EnvSpec spec;
  try {
    spec = describe(table, read_config(table, config));
  } catch (const std::invalid_argument& error) {
    raise("ConfigError", error.what());
  }
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
  return out;
}

EnvSpec read_spec(nb::handle spec) {
  EnvSpec out;
  for (nb::handle leaf : spec["observation"]) out.observation.push_back(leaf_from_python(leaf));
  for (nb::handle leaf : spec["action"]) out.action.push_back(leaf_from_python(leaf));
  return out;
}

}  // namespace stepmill
