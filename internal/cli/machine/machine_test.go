package machine_test

import (
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestMachine checks what get prints about the machine, and about the log level.
func TestMachine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, path, body, want string }{
		{"get process", "status/process",
			`{"processAttr":[{"pid":"1","user":"root","priority":"20","nice":"0","virtMemory":"10","residentSize":"5","sharedMemory":"2","status":"S",` +
				`"CPUUsage":"0.1","MemoryUsage":"0.2","time":"0:01.00","command":"a\u001bb"}]}`,
			"| PID | USER | PRIORITY | NICE | VIRTMEMORY | RESIDENTSIZE | SHAREDMEMORY | STATUS | CPUUSAGE | MEMORYUSAGE |  TIME   | COMMAND |\n" +
				"|-----|------|----------|------|------------|--------------|--------------|--------|----------|-------------|---------|---------|\n" +
				"|   1 | root |       20 |    0 |         10 |            5 |            2 | S      | 0.1      | 0.2         | 0:01.00 | a.b     |\n"},
		{"get devices", "status/device", `{"hostName":"h","machineID":"m","bootID":"b","OS":"Debian","kernel":"6.1","architecture":"x86_64","uptime":"1h"}`,
			"| HOSTNAME | MACHINEID | BOOTID |   OS   | KERNEL | ARCHITECTURE | UPTIME |\n" +
				"|----------|-----------|--------|--------|--------|--------------|--------|\n" +
				"| h        | m         | b      | Debian | 6.1    | x86_64       | 1h     |\n"},
		{"get fs", "status/filesystem", `{"filesystemAttr":[{"fileSystem":"/dev/x","type":"ext4","size":"10G","used":"1.0G","avail":"9.0G","usePercent":"10%","mountedOn":"/"}]}`,
			"| FILESYSTEM | TYPE | SIZE | USED | AVAIL | USEPERCENT | MOUNTEDON |\n" +
				"|------------|------|------|------|-------|------------|-----------|\n" +
				"| /dev/x     | ext4 | 10G  | 1.0G | 9.0G  | 10%        | /         |\n"},
		{"get loglevel", "config/params", `{"logLevel":"debug"}`,
			"| PARAM NAME | VALUE |\n|------------|-------|\n| Log level  | debug |\n"},
	} {
		s := clitest.NewServer(t, 200, tc.body)
		if got := clitest.Run(t, "", s.Args(tc.args)...); got != (clitest.Result{Stdout: tc.want}) {
			t.Errorf("%s: got %d %s\n%s, want tc.want on stdout",
				tc.args, got.Code, got.Stderr, got.Stdout)
		}
		if want := "GET /netlox/v1/" + tc.path; len(s.Requests) != 1 || s.Requests[0] != want {
			t.Errorf("%s asked %q", tc.args, s.Requests)
		}
		if got := clitest.Run(t, "", s.Args(tc.args+" -o yaml")...); got.Code != session.ExitOK || strings.Contains(got.Stdout, "|") {
			t.Errorf("%s -o yaml: %+v", tc.args, got)
		}
	}
}

func TestSetLogLevel(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Success)
	if got := clitest.Run(t, "", s.Args("set log-level critical")...); got != (clitest.Result{Stdout: "success\n"}) {
		t.Errorf(`got %+v, want "success\n" on stdout`, got)
	}
	if got := clitest.Run(t, "", s.Args("set loglevel loud")...); got.Code != session.ExitUsage ||
		!strings.Contains(got.Stderr, `log level "loud" is unknown (allowed: trace, debug`) {
		t.Errorf("got %+v, want exit code ExitUsage, "+
			"`log level \"loud\" is unknown (allowed: trace, debug` on stderr",
			got)
	}
	if want := `POST /netlox/v1/config/params {"logLevel":"critical"}`; len(s.Requests) != 1 || s.Requests[0] != want {
		t.Errorf("the requests are %q", s.Requests)
	}
}
