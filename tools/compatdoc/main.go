// Command compatdoc writes docs/compatibility.md and loxilb-compatibility(7) from
// internal/contract.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"loxilb/tools/markdown"
)

//go:generate go run . -root ../..

func main() {
	root := flag.String("root", ".", "directory of the project")
	flag.Parse()
	err := errors.Join(
		os.WriteFile(filepath.Join(*root, "docs/compatibility.md"), []byte(page(false)), 0o644),
		os.WriteFile(filepath.Join(*root, "docs/man/loxilb-compatibility.7"), []byte(manual()), 0o644),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compatdoc:", err)
		os.Exit(1)
	}
}

func manual() string { return markdown.Manual("loxilb-compatibility", page(true)) }
