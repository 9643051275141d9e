// Package image fetches images of containers from registries and keeps their
// files on the node, once however many tasks run in them.
//
// An image lies in a folder named by its digest, which only root can enter: the
// container sees it by a mount. It is unpacked into a folder with another name
// and renamed when it is whole, so that a folder with the name of a digest is.
//
// A run holds its image: a file in the image's folder has the run's name, from the
// fetch on until the agent knows that the run is over. Images without such a file are
// removed, those that were used least lately first, when all images together take
// more room than they may.
//
// The registry is asked at each fetch, with the login of the user or of the site, so
// that the cache gives nobody what the registry would not. Logins are never logged,
// stored, or named in an error.
//
// What the layers of an image say is written by root and is not to be trusted:
// every path is opened below the folder (os.Root), set-user-ID bits are dropped,
// and devices are left out.
package image
