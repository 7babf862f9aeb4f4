// The end of the interpreter while threads of the user still call pools.
//
// A daemon thread runs until it next asks for the interpreter lock; then Python 3.11 to 3.13 end it by unwinding its
// stack, and C++ aborts. So we end such a thread earlier, with a SystemExit, which ends a thread silently, in the next
// pool call that it makes or in the one that it waits in.
#pragma once

namespace stepmill {

// Called by the thread that ends the interpreter, while the interpreter is still intact.
void begin_exit();

// Whether `begin_exit` was called.
bool exit_has_begun();

// Raises SystemExit if `begin_exit` was called and this is another thread.
void end_thread_at_exit();

// For a thread that the interpreter unwinds at its end after all: it stays here until the process is gone.
[[noreturn]] void hang();

}  // namespace stepmill
