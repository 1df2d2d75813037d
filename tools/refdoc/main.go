// Command refdoc writes docs/man/loxilb-fields.7 from the fields of services and their descriptions
// in the API, docs/man/loxilb-events.7 from the kinds of events, and the manual pages from commands
// and flags, so they match the programs.
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
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "refdoc:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	code, err := os.ReadFile(filepath.Join(root, "internal/event/event.go"))
	if err != nil {
		return err
	}
	openapi, err := os.ReadFile(filepath.Join(root, "api/openapi.yaml"))
	if err != nil {
		return err
	}
	events, err := events(string(code))
	if err != nil {
		return err
	}
	fields, err := fields(string(openapi))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "docs/man/loxilb-fields.7"), []byte(markdown.Manual("loxilb-fields", fields)), 0o644),
		os.WriteFile(filepath.Join(root, "docs/man/loxilb-events.7"), []byte(markdown.Manual("loxilb-events", events)), 0o644),
		os.WriteFile(filepath.Join(root, "docs/man/loxicmd.1"), []byte(manual()), 0o644),
		os.WriteFile(filepath.Join(root, "docs/man/loxilb.8"), []byte(daemonManual()), 0o644),
	)
}
