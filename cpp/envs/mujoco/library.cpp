#include "envs/mujoco/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace stepmill {
namespace {

// The call of MuJoCo that this thread is in: where to go on after an error, and what the error said. `here` is null
// outside of our calls.
struct Landing {
  std::jmp_buf* here = nullptr;
  bool has_failed = false;
  char message[1024] = "";
};
thread_local Landing landing;

// MuJoCo expects that its error handler does not return, so its own frames are made for being left like this (its Python
// bindings do the same with an exception). Ours, `call`, makes no object with a destructor after the jump was prepared.
[[noreturn]] void land(const char* text) {
  std::snprintf(landing.message, sizeof landing.message, "%s", text);
  landing.has_failed = true;
  std::longjmp(*landing.here, 1);
}

void on_error(const char* text) { land(text); }

// MuJoCo writes warnings to stderr and to a file in the working directory, unless it has a handler, which is one for all
// threads. Ours is silent inside of our calls, keeps what a thread listens to, and does what MuJoCo does otherwise.
thread_local std::vector<std::string>* heard_here = nullptr;
void (*write_log)(const char* type, const char* text) = nullptr;

MujocoLibrary::Surroundings surroundings;

void on_warning(const char* text) {
  if (landing.here) return;
  if (heard_here) {
    heard_here->emplace_back(text);
    return;
  }
  if (write_log) write_log("WARNING", text);
  std::fprintf(stderr, "WARNING: %s\n\n", text);
}

template <class F>
bool find(void* library, const char* name, F*& out) {
  out = reinterpret_cast<F*>(dlsym(library, name));
  return out != nullptr;
}

constexpr const char* kTrialWarning = "a trial warning of stepmill";
constexpr const char* kTrialError = "a trial of stepmill's error handler";

}  // namespace

// The start of MuJoCo's struct; `check_errors_reach_us` checks that it is what we think.
struct MujocoLibrary::LogMessage {
  int level;
  int topic;
  char subject[1024];
};

// Warnings (a simulation that became unstable, too many contacts) are not ours to judge: in Gymnasium, too, the episode
// goes on.
void MujocoLibrary::on_log(const LogMessage* message) {
  constexpr int kError = 3;
  if (message->level >= kError) land(message->subject);
}

// Our handler in the slot of this thread. The bindings of MuJoCo use the same slot, so what was there is put back. Around
// it all, what callbacks of the user need.
class MujocoLibrary::HandlerScope {
 public:
  explicit HandlerScope(const MujocoLibrary& library)
      : library_(library), is_surrounded_(surroundings.enter && library.calls_back()) {
    landing.has_failed = false;
    if (is_surrounded_) entered_ = surroundings.enter();
    if (library_.set_log_handler_) {
      former_log_ = library_.set_log_handler_(&MujocoLibrary::on_log);
    } else {
      former_error_ = library_.get_error_handler_();
      library_.set_error_handler_(on_error);
      library_.take_warnings();
    }
  }
  ~HandlerScope() {
    landing.here = nullptr;
    if (library_.set_log_handler_)
      library_.set_log_handler_(former_log_);
    else
      library_.set_error_handler_(former_error_);
    if (is_surrounded_) surroundings.leave(entered_, landing.has_failed);
  }
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;

 private:
  const MujocoLibrary& library_;
  const bool is_surrounded_;
  void* entered_ = nullptr;
  LogHandler former_log_ = nullptr;
  ErrorHandler former_error_ = nullptr;
};

void MujocoLibrary::call(const Job& job, const void* model, void* data) const {
  std::jmp_buf here;
  const HandlerScope scope(*this);
  landing.here = &here;
  if (setjmp(here) != 0) throw std::runtime_error(std::string("MuJoCo: ") + landing.message);
  for (std::int64_t i = 0; i < job.times; ++i) job.repeated(model, data);
  if (job.last) job.last(model, data);
}

const MujocoLibrary& MujocoLibrary::of(const std::string& bindings) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<MujocoLibrary>> libraries;
  const std::lock_guard lock(mutex);
  auto& library = libraries[bindings];
  if (!library) library.reset(new MujocoLibrary(bindings));
  return *library;
}

MujocoLibrary::MujocoLibrary(const std::string& bindings) {
  void* library = dlopen(bindings.c_str(), RTLD_NOW | RTLD_NOLOAD);  // kept open, so that it stays loaded
  if (!library) throw std::runtime_error(bindings + " is not loaded");
  // `dlsym` looks at the file itself and at what it is linked to, in this order, and never at the rest of the process.
  const auto need = [&](const char* name, auto& out) {
    if (!find(library, name, out)) throw std::runtime_error(bindings + " is linked to no function " + name);
  };
  need("mj_resetData", reset_data_);
  need("mj_forward", forward_);
  need("mj_step", step_);
  need("mj_rnePostConstraint", rne_post_constraint_);
  need("mj_getState", get_state_);
  need("mj_setState", set_state_);
  (void)find(library, "mj_updateSleep", update_sleep_);
  if (!find(library, "_mjPRIVATE_setTlsLogHandler", set_log_handler_)) {
    need("_mjPRIVATE__get_tls_error_fn", get_error_handler_);
    need("_mjPRIVATE__set_tls_error_fn", set_error_handler_);
  }
  if (decltype(write_log) found = nullptr; find(library, "mju_writeLog", found)) write_log = found;
  (void)find(library, "mju_user_warning", warning_handler_);
  for (const char* name : {"mjcb_passive", "mjcb_control", "mjcb_contactfilter", "mjcb_sensor", "mjcb_time",
                           "mjcb_act_dyn", "mjcb_act_gain", "mjcb_act_bias"})
    if (void** callback = nullptr; find(library, name, callback)) callbacks_.push_back(callback);
  void (*raise_error)(const char*, ...) = nullptr;
  void (*warn)(const char*, ...) = nullptr;
  need("mju_error", raise_error);
  need("mju_warning", warn);
  check_errors_reach_us(raise_error, warn);
}

// Puts our handler where there is none. Not only once, because whoever sets one for a while puts none back. All of our
// threads write the same.
void MujocoLibrary::take_warnings() const {
  if (!warning_handler_) return;
  std::atomic_ref handler(*warning_handler_);
  if (!handler.load(std::memory_order_relaxed)) handler.store(on_warning, std::memory_order_relaxed);
}

bool MujocoLibrary::calls_back() const {
  return std::any_of(callbacks_.begin(), callbacks_.end(),
                     [](void** one) { return std::atomic_ref(*one).load(std::memory_order_relaxed) != nullptr; });
}

void MujocoLibrary::surround_callbacks(const Surroundings& by) { surroundings = by; }

void MujocoLibrary::listen() const {
  static thread_local std::vector<std::string> kept;
  kept.clear();
  heard_here = &kept;
  take_warnings();
}

std::vector<std::string> MujocoLibrary::heard() {
  if (!heard_here) return {};
  return std::move(*std::exchange(heard_here, nullptr));
}

std::string MujocoLibrary::file() const {
  Dl_info found{};
  return dladdr(reinterpret_cast<void*>(step_), &found) != 0 && found.dli_fname ? found.dli_fname : "";
}

// Gives a warning, which must pass, and raises an error, which must arrive. Otherwise the first real error would end the
// process, or every warning would fail an env.
void MujocoLibrary::check_errors_reach_us(void (*raise_error)(const char*, ...), void (*warn)(const char*, ...)) const {
  std::jmp_buf here;
  const HandlerScope scope(*this);
  landing.here = &here;
  landing.message[0] = '\0';
  if (setjmp(here) == 0) {
    warn("%s", kTrialWarning);
    raise_error("%s", kTrialError);
  }
  if (!std::strstr(landing.message, kTrialError))
    throw std::runtime_error("this MuJoCo does not report errors in a way that stepmill understands");
}

}  // namespace stepmill
