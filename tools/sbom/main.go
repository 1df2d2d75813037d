// Command sbom writes the bill of materials of programs in CycloneDX: the Go modules in each, from
// the linker's build information. The output depends only on the arguments and the programs, so the
// same programs give the same bytes.
//
//	sbom -version 1.2.3 -date 2026-12-31T23:59:59Z PROGRAM...
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []licence `json:"licenses,omitempty"`
	PURL     string    `json:"purl,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licence struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func main() {
	version := flag.String("version", "", "of the programs")
	date := flag.String("date", "", "of their commit, as RFC 3339 has it")
	flag.Parse()
	if err := write(os.Stdout, *version, *date, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, version, date string, programs []string) error {
	release := component{Type: "application", Ref: "release", Name: "loxilb", Version: version}
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{date, release}}
	all := dependency{Ref: release.Ref}
	for _, path := range programs {
		program, modules, err := read(path, version)
		if err != nil {
			return err
		}
		needs := dependency{Ref: program.Ref}
		for _, m := range modules {
			needs.On = append(needs.On, m.Ref)
			if !slices.ContainsFunc(b.Components, func(c component) bool { return c.Ref == m.Ref }) {
				b.Components = append(b.Components, m)
			}
		}
		b.Components, b.Dependencies = append(b.Components, program), append(b.Dependencies, needs)
		all.On = append(all.On, program.Ref)
	}
	slices.SortFunc(b.Components, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	b.Dependencies = append(b.Dependencies, all)
	indented := json.NewEncoder(out)
	indented.SetIndent("", "  ")
	return indented.Encode(b)
}

// read returns the components of a program and of its modules, including Go's standard library.
func read(path, version string) (program component, modules []component, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program, nil, fmt.Errorf("%s: %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return program, nil, err
	}
	name := filepath.Base(path)
	program = component{
		Type: "application", Ref: name, Name: name, Version: version, Licenses: []licence{{"Apache-2.0"}},
		Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}},
	}
	if name == "loxilb" { // which has the BPF objects
		program.Licenses[0].Expression += " AND (GPL-2.0-only OR BSD-2-Clause)"
	}
	return program, linked(info), nil
}

func linked(info *debug.BuildInfo) (modules []component) {
	deps := append(slices.Clone(info.Deps), &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, ".") { // a folder of the same release
			continue
		}
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		modules = append(modules, component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl})
	}
	return modules
}
