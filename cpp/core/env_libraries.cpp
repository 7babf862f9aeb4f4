#include "core/env_libraries.h"

#include <dlfcn.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <stdexcept>

#include "core/env/rng.h"
#include "core/env_set.h"
#include "core/foreign_env.h"
#include "core/surroundings.h"

namespace stepmill {
namespace {

constexpr sm_engine_functions kFunctions = {SM_ABI_VERSION, sizeof(sm_engine_functions), random_bounded_uint64,
                                            random_standard_normal};

// Never destroyed: threads may still look up classes when the program ends.
struct Libraries {
  std::mutex mutex;
  std::map<std::string, const sm_env_table*> by_name;
  std::uint64_t calls = 0;

  static Libraries& all() {
    static auto* libraries = new Libraries;
    return *libraries;
  }
};

// A path of an open file, which other processes, such as a symbolizer, can read too. `dlopen` takes two files of one name
// for the same, and a descriptor that was closed gives its number to the next. So the names differ, by a detour that
// spells how often this was called.
std::string path_of(int descriptor, std::uint64_t call) {
  std::string path = "/proc/" + std::to_string(getpid()) + "/fd/";
  for (; call != 0; call /= 2) path += call % 2 ? "./" : "/";
  return path + std::to_string(descriptor);
}

const sm_env_table* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  if (const auto functions_of = reinterpret_cast<const stepmill_env* (*)()>(dlsym(library, "stepmill_c_env"))) {
    const stepmill_env* functions = functions_of();
    if (!functions) throw std::runtime_error("its stepmill_c_env() returned NULL");
    return foreign_table(*functions);
  }
  const auto table_of = reinterpret_cast<sm_env_table_function>(dlsym(library, "stepmill_env_table"));
  if (!table_of) throw std::runtime_error("it exports neither stepmill_c_env (stepmill/c_env.h) nor stepmill_env_table");
  const sm_env_table* table = table_of(&kFunctions);
  if (!table) throw std::runtime_error("it was compiled for another version of stepmill");
  check_abi(*table);
  return table;
}

}  // namespace

void add_foreign_env(const std::string& name, const stepmill_env& functions) {
  Libraries& known = Libraries::all();
  const std::lock_guard lock(known.mutex);
  if (!known.by_name.contains(name)) known.by_name[name] = foreign_table(functions);
}

void load_env_library(const std::string& name, int descriptor) {
  Libraries& known = Libraries::all();
  const std::lock_guard lock(known.mutex);
  if (known.by_name.contains(name)) return;
  const KeptSurroundings kept;
  known.by_name[name] = open_library(path_of(descriptor, ++known.calls));
}

const sm_env_table* find_loaded_env(const std::string& name) {
  Libraries& known = Libraries::all();
  const std::lock_guard lock(known.mutex);
  const auto found = known.by_name.find(name);
  return found == known.by_name.end() ? nullptr : found->second;
}

}  // namespace stepmill
