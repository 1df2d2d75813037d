// Package kernels checks what the scripts beside it boot: kernels, and architectures.
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

// TestRefusedMachines: what the compiler says about a machine of the other byte order, or of 32
// bits, is one sentence, and nothing that depends on the byte order is built before.
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

// TestArm64: both programs are right Go for arm64, where fields of the kernel's structs have other
// types. Checked without being built, which takes minutes.
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
	for d := json.NewDecoder(out); ; { // what is imported comes first
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if err := c.check(&p); p.ours() {
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

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

func (p *listed) ours() bool { return p.Module != nil && p.Module.Main }

// checker checks packages in the order in which they import each other.
type checker struct {
	config   types.Config
	fset     *token.FileSet
	packages map[string]*types.Package
	current  *listed
}

// check checks the types of a package, within functions only if it is ours.
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
	c.current, c.config.IgnoreFuncBodies = p, !p.ours()
	checked, err := c.config.Check(p.ImportPath, c.fset, files, nil)
	c.packages[p.ImportPath] = checked
	return err
}

// Import returns what a package that was checked before has.
func (c *checker) Import(path string) (*types.Package, error) {
	if mapped, ok := c.current.ImportMap[path]; ok {
		path = mapped
	}
	if p := c.packages[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("not listed before what imports it: " + path)
}
