// Package space gives each job folders of its own in the place of the node's
// /tmp, /dev/shm and others: a mount namespace in which they are mounted.
//
// A space is of one attempt of a job. It consists of a folder below the site's
// BasePath, which only root can enter, with
//
//   - ns: the mount namespace, kept by a bind mount of its file in /proc, so
//     that it lives without a process and outlives the shepherd;
//   - 0, 1, …: the contents of the private folders, in their order. That of
//     /dev/shm is memory, and charged to the job that writes into it.
//
// The folder is mounted onto itself and made private first: the kernel does not
// let the file of a namespace be mounted where it would spread into that
// namespace.
//
// A link with the attempt's key in the shepherds' state folder says where its
// space is. It is written before anything is made and removed last, so that
// whatever is killed at whatever moment, what is left is found again: also by
// the shepherd of another release, also after BasePath has been changed.
package space
