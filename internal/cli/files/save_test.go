package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestSave checks that apply accepts the contract's files, and that the former file is kept,
// unchanged if the server refuses.
func TestSave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const spec = `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp","name":"a<b"},"endpoints":[]}`
	s := clitest.NewServer(t, 200, `{"objects":[{"apiVersion":"netlox/v1","kind":"Loadbalancer","spec":`+spec+`}]}`)
	content := func(name string) string {
		data, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for range 3 {
		if got := clitest.Run(t, "", s.Args("save -l -c "+dir)...); got != (clitest.Result{Stdout: "success: 1 object saved to " + dir + "/lbconfig.txt\n"}) {
			t.Fatalf(`got %+v, want "success: 1 object saved to " + dir + "/lbconfig.txt\n" on stdout`,
				got)
		}
	}
	if want := `{"lbAttr":[` + spec + "]}\n"; content("lbconfig.txt") != want || content("lbconfig.txt.bk") != want {
		t.Errorf("got %q, want the same content in lbconfig.txt and its backup", content("lbconfig.txt"))
	}
	if !strings.HasPrefix(s.Requests[0], "GET /netlox/v1/config/objects?kind=Loadbalancer") {
		t.Errorf(`got %q, want s.Requests[0] begins with "GET /netlox/v1/config/objects?kind=Loadbalancer"`,
			s.Requests)
	}
	if got := clitest.Run(t, "", s.Args("save -a --config-path="+dir)...); got.Code != session.ExitOK ||
		strings.Count(got.Stdout, "success") != 7 || !strings.HasPrefix(content("FWconfig.txt"), `{"fwAttr":[`) || !strings.HasPrefix(content("EPconfig.txt"), `{"Attr":[`) {
		t.Errorf("got %+v, want success for each of seven files", got)
	}
	if got := clitest.Run(t, "", s.Args("save -f "+dir+"/all.yaml")...); got.Code != session.ExitOK ||
		!strings.HasPrefix(content("all.yaml"), "apiVersion: netlox/v1\nkind: Loadbalancer\nspec:\n") {
		t.Errorf("got %+v with all.yaml %s, want success, and a file of kind Loadbalancer", got, content("all.yaml"))
	}
	if !strings.HasPrefix(content("BFDconfig.txt"), `{"Attr":[`) {
		t.Errorf("got %v, want BFD sessions in BFDconfig.txt", content("BFDconfig.txt"))
	}
	if info, err := os.Stat(dir + "/all.yaml"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	for args, want := range map[string]string{
		"save": "at least one of the flags", "save -a -l": "none of the others can be",
		"save -l -c /dev/null/x": "cannot create the folder of the files: mkdir /dev/null: not a directory", "save -l -c /proc": "/proc/lbconfig.txt is unchanged",
	} {
		if got := clitest.Run(t, "", s.Args(args)...); got.Code == session.ExitOK || !strings.Contains(got.Stderr, want) {
			t.Errorf("%s: got %+v, want a failure, %q in it", args, got, want)
		}
	}
	if got := clitest.Run(t, "", s.Args("save -a -c "+dir+"/new/folder")...); got.Code != session.ExitOK {
		t.Errorf("got %+v, want exit code ExitOK", got)
	}
	if content("new/folder/lbconfig.txt") != content("lbconfig.txt") {
		t.Error("the new folder has something else")
	}
	refusing := clitest.NewServer(t, 503, `{"code":503,"message":"x","result":"x"}`)
	before := content("lbconfig.txt")
	if got := clitest.Run(t, "", refusing.Args("save -l -c "+dir)...); got.Code != session.ExitRefused || content("lbconfig.txt") != before {
		t.Errorf("got %+v, want exit code ExitRefused, and the file unchanged", got)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 10 {
		t.Errorf("got %v %v, want no error, 10 elements", list, err)
	}
}

// TestSaveToDevice checks that save replaces no pipe, device or folder, neither directly nor by a
// link such as /dev/stdout.
func TestSaveToDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clitest.NewServer(t, 200, `{"objects":[]}`)
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "file", "")
	for name, to := range map[string]string{"null": "/dev/null", "out": "/proc/self/fd/1", "to-file": "file"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe", "null", "out", "."} {
		before, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got := clitest.Run(t, "", s.Args("save -f "+dir+"/"+name)...)
		if got.Code == session.ExitOK || !strings.Contains(got.Stderr, "it is not a regular file (allowed: a file, or -f - for standard output)") {
			t.Errorf("%s: got %+v, want a refusal", name, got)
		}
		if after, err := os.Lstat(filepath.Join(dir, name)); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: it was %v and is %v (%v)", name, before.Mode(), after, err)
		}
	}
	if got := clitest.Run(t, "", s.Args("save -f "+dir+"/to-file")...); got.Code != session.ExitOK {
		t.Errorf("a link to a file: got %+v, want success", got)
	}
}
