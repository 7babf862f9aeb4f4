// The reset options "low" and "high" that several classic control envs share.
#pragma once

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

// A number as an error message shows it.
inline std::string shown(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

struct ResetBounds {
  double low, high;
};

// The range of the initial state: the options given as the class's first two, else the defaults.
// Infinity and NaN fail both comparisons, as they do in numpy's `uniform`.
inline ResetBounds reset_bounds(const Options& options, double low, double high) {
  low = options.get(0, low);
  high = options.get(1, high);
  if (!(low <= high) || !std::isfinite(high - low))
    throw std::invalid_argument("reset options: expected finite low <= high, got low=" +
                                shown(low) + " and high=" + shown(high));
  return {low, high};
}

}  // namespace stepmill
