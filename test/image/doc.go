// Package image runs the container image by runc, with no more than docs/container.md says that it
// needs, in networks of namespaces.
package image
