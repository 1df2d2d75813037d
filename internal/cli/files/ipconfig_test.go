package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"

	"golang.org/x/sys/unix"
)

// TestInterfaces checks that the configuration of interfaces is saved in the contract's folders and
// applied again: of all, of one interface, or only its routes.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clitest.NewServer(t, 200, `{"ipAttr":[{"dev":"eth0","ipAddress":["10.0.0.1/24"]}],`+
		`"routeAttr":[{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","dev":"eth0","protocol":4}],`+
		`"objects":[{"kind":"Vlan","spec":{"vid":100}}]}`)
	path := filepath.Join(dir, "ipconfig")
	content := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for range 3 {
		if got := clitest.Run(t, "", s.Args("save -i -c "+dir)...); got != (clitest.Result{Stdout: "success: 3 lines of 2 interfaces in " + path + "\n"}) {
			t.Fatalf(`got %+v, want "success: 3 lines of 2 interfaces in " + path + "\n" on stdout`,
				got)
		}
	}
	for _, at := range []string{"ipconfig/", "ipconfig.bk/"} {
		if content(at+"eth0/ipv4addr") != "ip addr add 10.0.0.1/24 dev eth0\n" || content(at+"eth0/ipv4route") != "ip route add 10.1.0.0/16 via 10.0.0.254 proto static\n" ||
			content(at+"vlan100/type") != "ip link add name vlan100 type bridge\n" {
			t.Errorf("%q is in %s", content(at+"eth0/ipv4addr"), at)
		}
	}
	const address, route = `{"kind":"IPaddress","spec":{"dev":"eth0","ipAddress":"10.0.0.1/24"}}`,
		`{"kind":"Route","spec":{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","protocol":"static"}}`
	const vlan = `{"kind":"Vlan","spec":{"vid":100}}`
	applied := clitest.NewServer(t, 200, `{"result":"Success","changes":[],"unchanged":2}`)
	for args, want := range map[string]string{
		"apply --per-intf eth0 -c " + path:             "[" + address + "," + route + "]",
		"apply --per-intf eth0 -r -c " + path:          "[" + route + "]",
		"apply -i " + path:                             "[" + vlan + "," + address + "," + route + "]",
		"apply --ip " + path + "/eth0/ipv4addr":        "[" + address + "]",
		"apply --ip=" + path + "/vlan100/type --prune": "[" + vlan + `],"prune":["Vlan"]`,
	} {
		got := clitest.Run(t, "", applied.Args(args)...)
		if request := applied.Requests[len(applied.Requests)-1]; got.Code != session.ExitOK || !strings.Contains(request, `"objects":`+want) {
			t.Errorf("%s: got %+v and request %s, want success and objects %s", args, got, request, want)
		}
	}
	if err := os.WriteFile(filepath.Join(path, "eth0", "ipv4addr"), []byte("ip addr add 10.0.0.1/24 dev eth0\nreboot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := len(applied.Requests)
	for args, want := range map[string]string{
		"apply --per-intf eth0 -c " + path:    "Error: nothing was changed:\n" + path + `/eth0/ipv4addr:2:1: unsupported line "reboot"`,
		"apply --per-intf .. -c " + path:      `--per-intf ".." is not an interface name`,
		"apply --per-intf ../x -c " + path:    `--per-intf "../x" is not an interface name`,
		"apply --per-intf eth9 -c " + path:    "no such file",
		"apply -r -i " + path:                 "--ipv4route needs --per-intf",
		"apply --per-intf eth0 -i " + path:    "--ip cannot be combined with --per-intf",
		"apply -i " + filepath.Join(dir, "x"): "no such file",
		"save -i -c /dev/null/x":              "cannot create the folder of the files", "save -i -c /proc": "/proc/ipconfig is unchanged",
		"save -i -a": "none of the others can be",
	} {
		if got := clitest.Run(t, "", applied.Args(args)...); got.Code == session.ExitOK || !strings.Contains(got.Stderr, want) {
			t.Errorf("%s: got %+v, want a failure, %q in it", args, got, want)
		}
	}
	if all := strings.Join(applied.Requests[sent:], "\n"); strings.Contains(all, "POST") {
		t.Errorf("%s was sent", all)
	}
	evil := clitest.NewServer(t, 200, `{"ipAttr":[{"dev":"../../x","ipAddress":["10.0.0.1/24"]}]}`)
	if got := clitest.Run(t, "", evil.Args("save -i -c "+dir)...); got.Code == session.ExitOK || content("ipconfig/vlan100/type") == "" {
		t.Errorf("got %+v, want a failure, and files of vlan100 that stay", got)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("got %v %v, want no error, 2 elements", list, err)
	}
}

// TestInterfacesLeftOut checks that the success message lists what could not be saved.
func TestInterfacesLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clitest.NewServer(t, 200, `{"ipAttr":[],"objects":[],"routeAttr":[{"destinationIPNet":"::/0","gateway":"fe80::1","dev":"eth0","protocol":4},`+
		`{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.1","dev":"eth0","protocol":4,"metric":5},{"destinationIPNet":"10.1.0.0/16",`+
		`"gateway":"10.0.0.1","dev":"eth0","protocol":4}]}`)
	want := clitest.Result{Stdout: "success: 1 lines of 1 interfaces in " + dir + "/ipconfig\n",
		Stderr: "Warning: routes not saved: 1, which have a link-local gateway, such as fe80::1: routes of loxilb name no interface\n" +
			"Warning: routes not saved: 1, which have a metric: routes of loxilb have the default one\n"}
	if got := clitest.Run(t, "", s.Args("save -i -c "+dir)...); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestInterfacesThatNeedOthers checks that folders are read before interfaces are created: a member
// gets its tag although the folder of its VLAN interface comes later.
func TestInterfacesThatNeedOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, line := range map[string]string{
		"a100/master":  "ip link set dev eth0.100 master vlan100",
		"eth0/subintf": "ip link add link eth0 name eth0.100 type vlan id 100",
	} {
		if err := errors.Join(os.Mkdir(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := clitest.NewServer(t, 200, `{"result":"Success","changes":[]}`)
	got := clitest.Run(t, "", s.Args("apply --ip "+dir)...)
	if request := s.Requests[len(s.Requests)-1]; got.Code != session.ExitOK || !strings.Contains(request, `"spec":{"dev":"eth0","tagged":true}`) {
		t.Errorf("got %+v, %s, want exit code ExitOK, `\"spec\":{\"dev\":\"eth0\",\"tagged\":true}` in request",
			got, request)
	}
}

// TestInterfaceFilesThatAreNone checks that a pipe, a folder or a loop of links in place of a file
// causes an error, and does not block the command.
func TestInterfaceFilesThatAreNone(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","changes":[]}`)
	for name, make := range map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
	} {
		dir := t.TempDir()
		if err := os.Mkdir(dir+"/eth0", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := make(dir + "/eth0/ipv4addr"); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"apply --per-intf eth0 -c " + dir, "apply -i " + dir} {
			if got := clitest.Run(t, "", s.Args(args)...); got.Code == session.ExitOK || !strings.Contains(got.Stderr, dir+"/eth0/ipv4addr") {
				t.Errorf("got %s, %s: %+v, want a failure that names the file of eth0", name, args, got)
			}
		}
		if err := make(dir + "/one.yaml"); err != nil {
			t.Fatal(err)
		}
		if got := clitest.Run(t, "", s.Args("apply -f "+dir)...); name != "folder" && got.Code == session.ExitOK {
			t.Errorf("%s in a folder of files: %+v", name, got)
		}
	}
}
