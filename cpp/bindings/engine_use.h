// The check at the start of every method of the engine: may it be used now?
#pragma once

#include <utility>

#include "bindings/engine.h"
#include "bindings/python/errors.h"
#include "bindings/python/exit.h"

namespace stepmill {

class Engine::Entry {
 public:
  explicit Entry(Engine& engine) : engine_(engine) { engine.go_inside(); }
  ~Entry() { engine_.inside_.store(0, std::memory_order_release); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Engine& engine_;
};

// Guards a method: refuses a closed pool, a forked child and a second call.
class Engine::Use {
 public:
  explicit Use(Engine& engine) : entry_(may_be_used(engine)), time_(*engine.counters_) {
    engine.host_.check_whole();
  }
  // The same for a call that sends, receives, or needs all envs: sessions make way for it, or refuse it.
  Use(Engine& engine, const char* call) : Use(without_sessions(engine, call)) {}

  static Engine& may_be_used(Engine& engine) {
    end_thread_at_exit();
    const auto refuse_closed = [] { raise("ClosedError", "the pool is closed: make a new one"); };
    if (engine.closed_) refuse_closed();
    if (engine.host_.forked())
      raise("ForkedError",
            "the pool was made before a fork and belongs to the parent process: its threads and worker processes do "
            "not serve this one. Make a pool in this process instead");
    if (engine.host_.has_ended()) refuse_closed();  // the garbage collector has ended it, and an env still calls its pool
    return engine;
  }

 private:
  static Engine& without_sessions(Engine& engine, const char* call) {
    if (engine.sessions_.is_valid()) may_be_used(engine).sessions_.attr("make_way")(call);
    // In a program it could not be raised as what it is. Whoever asked for it knows it.
    if (engine.xla_error_waits_ && std::exchange(may_be_used(engine).xla_error_waits_, false)) raise_again(engine.xla_error_);
    return engine;
  }

  const Entry entry_;
  const CallTime time_;
};

}  // namespace stepmill
