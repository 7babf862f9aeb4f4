// A library with the functions that we call in MuJoCo, for tests without MuJoCo: compiled once as MuJoCo 3 reports
// errors, and once as MuJoCo 4 does (FAKE_MUJOCO).
//
// A "data" is an array of doubles: [0] counts steps, [1] counts resets, [2] counts forwards, [3] counts rne calls. A
// "model" is an int: the step at which an error is raised (0: never); negative: a warning instead.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

extern "C" {

#if FAKE_MUJOCO == 3
static thread_local void (*error_handler)(const char*) = nullptr;
void (*mju_user_warning)(const char*) = nullptr;
int fake_default_warnings = 0;  // written to the log file
void (*_mjPRIVATE__get_tls_error_fn())(const char*) { return error_handler; }
void _mjPRIVATE__set_tls_error_fn(void (*handler)(const char*)) { error_handler = handler; }
void mju_writeLog(const char*, const char*) { ++fake_default_warnings; }
#else
struct fake_message {
  int level, topic;
  char subject[1024];
  const char* body;
};
static thread_local void (*log_handler)(const fake_message*) = nullptr;
using fake_handler = void (*)(const fake_message*);
fake_handler _mjPRIVATE_setTlsLogHandler(fake_handler handler) {
  fake_handler former = log_handler;
  log_handler = handler;
  return former;
}
#endif

#if FAKE_MUJOCO == 3
static void report(bool error, const char* text) {
  if (error) {
    if (!error_handler) std::abort();  // as MuJoCo ends the process
    error_handler(text);
    std::abort();
  }
  if (mju_user_warning) mju_user_warning(text);
  else mju_writeLog("WARNING", text);
}
#else
static void report(bool error, const char* text) {
  fake_message message{error ? 3 : 2, 0, "", nullptr};
  std::snprintf(message.subject, sizeof message.subject, "%s", text);
  if (!log_handler) std::abort();
  log_handler(&message);
  if (error) std::abort();
}
#endif

static void report_formatted(bool error, const char* format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  report(error, text);
}
void mju_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_formatted(true, format, arguments);
  va_end(arguments);
}
void mju_warning(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_formatted(false, format, arguments);
  va_end(arguments);
}

void mj_step(const void* model, void* data) {
  auto* counts = static_cast<double*>(data);
  const int fails_at = *static_cast<const int*>(model);
  counts[0] += 1;
  if (fails_at > 0 && counts[0] == fails_at) mju_error("step %d failed", fails_at);
  if (fails_at < 0 && counts[0] == -fails_at) report(false, "the simulation is unstable");
}
void mj_resetData(const void*, void* data) {
  auto* counts = static_cast<double*>(data);
  counts[0] = 0;
  counts[1] += 1;
}
void mj_forward(const void*, void* data) { static_cast<double*>(data)[2] += 1; }
void mj_getState(const void*, const void* data, double* state, unsigned) { *state = static_cast<const double*>(data)[0]; }
void mj_setState(const void*, void* data, const double* state, unsigned) { static_cast<double*>(data)[0] = *state; }
void mj_rnePostConstraint(const void*, void* data) { static_cast<double*>(data)[3] += 1; }

}  // extern "C"
