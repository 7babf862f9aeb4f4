// The functions of the MuJoCo that the user has installed, found at run time.
//
// Neither its headers nor its structs are known here: they change with every release, and the functions hardly ever. A
// model and a data are addresses, made by MuJoCo's own Python package.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepmill {

class MujocoLibrary {
 public:
  // The library that this file, the bindings of MuJoCo's Python package, is linked to. It must be loaded. Functions are
  // looked up there and nowhere else, because a process may hold several MuJoCos, and the models and data are of this
  // one. Throws std::runtime_error if it lacks something that we need.
  static const MujocoLibrary& of(const std::string& bindings);

  // The file that the functions come from.
  std::string file() const;

  // What the user's callbacks (mjcb_control and others) need, called around each call below while one is set. `leave` is
  // given what `enter` returned, and whether the call failed. One for all libraries, set while none of them is called.
  struct Surroundings {
    void* (*enter)() = nullptr;
    void (*leave)(void* entered, bool has_failed) = nullptr;
  };
  static void surround_callbacks(const Surroundings& by);

  // From `listen` to `heard`, what MuJoCo warns of in calls that others make on this thread, such as compiling a model, is
  // kept for us. Otherwise MuJoCo would print it and write it into a file in the working directory.
  void listen() const;
  static std::vector<std::string> heard();

  // Each of these throws std::runtime_error with MuJoCo's message if MuJoCo reports an error, which without us would end
  // the process. After that, only `reset_data` may be called for that data.
  void reset_data(const void* model, void* data) const { call({reset_data_, nullptr, 1}, model, data); }
  void forward(const void* model, void* data) const { call({forward_, nullptr, 1}, model, data); }
  // mj_step so many times, then mj_rnePostConstraint, as Gymnasium does: mj_step leaves out the forces on bodies.
  void step(const void* model, void* data, std::int64_t times) const {
    call({step_, rne_post_constraint_, times}, model, data);
  }

  // What a data keeps outside of its arrays and decides its next step: the time, and what is counted of the bodies that
  // are asleep, which follows from the arrays.
  double time_of(const void* model, const void* data) const {
    double time = 0.0;
    get_state_(model, data, &time, kTime);
    return time;
  }
  void finish_copy(const void* model, void* data, double time) const {
    set_state_(model, data, &time, kTime);
    if (update_sleep_) update_sleep_(model, data);
  }

 private:
  using Function = void (*)(const void* model, void* data);
  struct Job {
    Function repeated, last;  // `last` may be null
    std::int64_t times;
  };

  // What MuJoCo calls instead of ending the process, one per thread. MuJoCo 4 passes messages of all levels to it,
  // MuJoCo 3 the text of errors.
  struct LogMessage;
  using LogHandler = void (*)(const LogMessage*);
  using ErrorHandler = void (*)(const char*);
  class HandlerScope;

  explicit MujocoLibrary(const std::string& bindings);
  void check_errors_reach_us(void (*raise_error)(const char*, ...), void (*warn)(const char*, ...)) const;
  void take_warnings() const;
  bool calls_back() const;
  void call(const Job& job, const void* model, void* data) const;
  static void on_log(const LogMessage* message);

  static constexpr unsigned int kTime = 1;  // mjSTATE_TIME

  Function reset_data_, forward_, step_, rne_post_constraint_;
  void (*get_state_)(const void* model, const void* data, double* state, unsigned int parts) = nullptr;
  void (*set_state_)(const void* model, void* data, const double* state, unsigned int parts) = nullptr;
  Function update_sleep_ = nullptr;                      // null if there is no such thing
  LogHandler (*set_log_handler_)(LogHandler) = nullptr;  // MuJoCo 4; null: the two below
  ErrorHandler (*get_error_handler_)() = nullptr;
  void (*set_error_handler_)(ErrorHandler) = nullptr;
  void (**warning_handler_)(const char*) = nullptr;  // for all threads; null if there is no such thing
  std::vector<void**> callbacks_;                    // of the user, for all threads; each may be null
};

}  // namespace stepmill
