// Points where a test may kill a worker: at every step of the protocol, compiled only into test builds.
#pragma once

#ifdef STEPMILL_KILL_POINTS
namespace stepmill {
// Called with the name of each point that is passed; set by tests.
extern void (*kill_point)(const char* name);
}  // namespace stepmill
#define STEPMILL_KILL_POINT(name) \
  do {                            \
    if (stepmill::kill_point) stepmill::kill_point(name); \
  } while (false)
#else
#define STEPMILL_KILL_POINT(name) \
  do {                            \
  } while (false)
#endif
