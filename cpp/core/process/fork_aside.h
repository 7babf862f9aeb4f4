// Forks a process that is not our child: its parent is the subreaper above us, as if it had been forked there.
//
// Nobody here has to wait for it, nor does it disturb code of ours that waits for any child; and it may outlive us. The
// usual way, to fork twice, copies the tables of all our memory twice. Here the process in between shares our memory, as
// a child of vfork does, so that they are copied once.
#pragma once

#include <sys/types.h>

namespace stepmill {

// Its pid, and 0 in the new process, which is in no process group of ours. It is the subreaper's child already. The
// process must have one thread, and no children: while this runs, it does not take in orphans. Throws std::system_error
// if no process can be made.
pid_t fork_aside();

}  // namespace stepmill
