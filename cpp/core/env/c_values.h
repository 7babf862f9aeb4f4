// Configuration values, from C++ to C and back.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/env/env_table.h"
#include "core/env/spec.h"

namespace stepmill {

inline sm_value to_c(const ConfigItem& item) {
  sm_value out{};
  out.key = item.key.c_str();
  out.type = static_cast<std::int32_t>(item.value.index());
  switch (out.type) {
    case SM_FLAG: out.integer = std::get<bool>(item.value); break;
    case SM_INTEGER: out.integer = std::get<std::int64_t>(item.value); break;
    case SM_REAL: out.real = std::get<double>(item.value); break;
    case SM_TEXT: out.text = std::get<std::string>(item.value).c_str(); break;
    case SM_REALS: {
      const Reals& reals = std::get<Reals>(item.value);
      out.reals = reals.data();
      out.count = static_cast<std::int32_t>(reals.size());
      break;
    }
  }
  return out;
}

// The values of a Config, which must outlive them.
class CValues {
 public:
  explicit CValues(const Config& config) {
    for (const auto& item : config.items()) values_.push_back(to_c(item));
  }
  sm_values get() const { return {values_.data(), static_cast<std::int32_t>(values_.size())}; }

 private:
  std::vector<sm_value> values_;
};

inline ConfigItem from_c(const sm_value& value) {
  switch (value.type) {
    case SM_FLAG: return {value.key, value.integer != 0};
    case SM_INTEGER: return {value.key, value.integer};
    case SM_REAL: return {value.key, value.real};
    case SM_TEXT: return {value.key, std::string(value.text)};
    default: return {value.key, Reals(value.reals, value.reals + value.count)};
  }
}

inline Config from_c(const sm_values& c) {
  std::vector<ConfigItem> items;
  for (std::int32_t i = 0; i < c.count; ++i) items.push_back(from_c(c.values[i]));
  return Config(std::move(items));
}

}  // namespace stepmill
