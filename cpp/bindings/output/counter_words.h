// What `stepmill top` reads of other processes (core/counters/counter_reader.h), for stepmill/top.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

void register_counter_words(nanobind::module_& m);

}  // namespace stepmill
