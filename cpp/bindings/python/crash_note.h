// What a worker process says when it crashes, right before Python shows where: which worker it is, and which env it ran.
#pragma once

namespace stepmill {

// Called after faulthandler has been enabled, whose handlers then come second.
void install_crash_note(int worker);
// The env whose code runs from now on; -1: none.
void set_crash_env(int env);

}  // namespace stepmill
