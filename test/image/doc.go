// Package image runs the container image with runc in network namespaces, with only the privileges
// that docs/container.md lists.
package image
