// Forks a process that is not our child: its parent is the subreaper above us, as if it had been forked there.
//
// Nobody here has to wait for it, nor does it disturb code of ours that waits for any child; and it may outlive us. The
// usual way, to fork twice, copies the tables of all our memory twice. Here the process in between shares our memory, as
// a child of vfork does, so that they are copied once.
#pragma once

namespace stepmill {

// Whether this is the new process, which has blocked no more signals than we have. The process must have one thread, and
// no children: while this runs, it does not take in orphans. Throws std::system_error if no process can be made.
bool fork_aside();

}  // namespace stepmill
