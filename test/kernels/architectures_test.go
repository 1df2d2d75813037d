// Package kernels tests kernels and architectures. The scripts in this directory boot them in
// virtual machines.
package kernels

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goCommand runs the go command for an architecture.
func goCommand(arch string, args ...string) *exec.Cmd {
	cmd := exec.Command("../../tools/go", args...)
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	return cmd
}

// TestRefusedMachines checks that compiling for a machine with the other byte order or 32 bits
// fails with one sentence, before anything that depends on the byte order is compiled.
func TestRefusedMachines(t *testing.T) {
	t.Parallel()
	const machine, programs = "loxilb/internal/kernel/datapath/bpf/machine", "loxilb/internal/kernel/datapath/bpf"
	const says = `"loxilb is for little-endian 64-bit machines: amd64 and arm64"`
	for _, arch := range []string{"s390x", "ppc64", "mips64", "386"} {
		out, err := goCommand(arch, "build", machine).CombinedOutput()
		if err == nil || strings.Count(string(out), says) != 1 || strings.Count(string(out), "refused.go:") != 1 {
			t.Errorf("GOARCH=%s go build %s: %v, and it says:\n%s", arch, machine, err, out)
		}
	}
	out, err := goCommand("s390x", "list", "-f", `{{join .Imports " "}}`, programs).Output()
	if err != nil || !strings.Contains(string(out), machine) {
		t.Errorf("%s does not import %s but %q: %v", programs, machine, out, err)
	}
}

// TestUnknownCheck checks that a run with the name of an unknown check fails before it boots a
// guest.
func TestUnknownCheck(t *testing.T) {
	t.Parallel()
	run := exec.Command("./run", "amd64")
	run.Env = append(os.Environ(), "ONLY=every  program")
	out, err := run.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), `ONLY="every  program" is in no check's name:`) || !strings.Contains(string(out), "\nevery program loads\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestArm64 type-checks both programs for arm64, where fields of the kernel's structs have other
// types. A build would take minutes.
func TestArm64(t *testing.T) {
	t.Parallel()
	c := checker{fset: token.NewFileSet(), packages: map[string]*types.Package{"unsafe": types.Unsafe}}
	c.config = types.Config{Importer: &c, Sizes: types.SizesFor("gc", "arm64"), Error: func(error) {}}
	list := goCommand("arm64", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "../../cmd/...")
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for d := json.NewDecoder(out); ; { // imported packages come first
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if err := c.check(&p); p.isMainModule() {
			ours++
			if err != nil {
				t.Errorf("GOARCH=arm64: %v", err)
			}
		}
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
	if ours < 50 {
		t.Errorf("only %d packages were checked", ours)
	}
}

// listed holds fields of a package in the output of go list.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

func (p *listed) isMainModule() bool { return p.Module != nil && p.Module.Main }

// checker type-checks packages in the order of their imports.
type checker struct {
	config   types.Config
	fset     *token.FileSet
	packages map[string]*types.Package
	current  *listed
}

// check type-checks a package. It includes bodies of functions only for packages of this module.
func (c *checker) check(p *listed) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	c.current, c.config.IgnoreFuncBodies = p, !p.isMainModule()
	checked, err := c.config.Check(p.ImportPath, c.fset, files, nil)
	c.packages[p.ImportPath] = checked
	return err
}

// Import returns a package that was checked before.
func (c *checker) Import(path string) (*types.Package, error) {
	if mapped, ok := c.current.ImportMap[path]; ok {
		path = mapped
	}
	if p := c.packages[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("not listed before what imports it: " + path)
}
