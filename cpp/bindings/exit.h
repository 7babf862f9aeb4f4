// The end of the interpreter, while threads of the user's still call pools.
//
// A daemon thread runs on until it next asks for the interpreter lock; then Python 3.11 to 3.13 end it by unwinding its
// stack, which C++ answers with an abort. So such a thread is ended earlier, by a SystemExit, which threads die of
// without a word, in the next pool call that it makes or waits in.
#pragma once

namespace stepmill {

// Called by the thread that ends the interpreter, as long as the latter is whole.
void begin_exit();

// Raises SystemExit where that has happened and this is another thread.
void end_thread_at_exit();

// For a thread that is being unwound by the interpreter's end after all: it stays here until the process is gone.
[[noreturn]] void hang();

}  // namespace stepmill
