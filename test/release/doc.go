// Package release tests what make release leaves.
package release
