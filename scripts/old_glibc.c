/* What GCC's C++ library takes from a glibc newer than 2.27, for wheels that are linked against that one
   (old_glibc.sh). None of it is seen outside of what it is linked into. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

/* "There may be other threads", always: reference counts are changed by atomic operations. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* Waits by the clock of the day, as that library does where it knows no other way. If that clock was set forward in the
   meantime, this is a wake-up for nothing, for which the caller of any condition must be prepared. */
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                                 clockid_t clock, const struct timespec* end) {
  struct timespec now, day;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  day.tv_sec += end->tv_sec - now.tv_sec;
  day.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (day.tv_nsec < 0) day.tv_nsec += 1000000000, --day.tv_sec;
  if (day.tv_nsec >= 1000000000) day.tv_nsec -= 1000000000, ++day.tv_sec;
  const int result = pthread_cond_timedwait(condition, mutex, &day);
  if (result != ETIMEDOUT) return result;
  clock_gettime(clock, &now);
  return now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec) ? ETIMEDOUT : 0;
}
