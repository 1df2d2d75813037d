package machine_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

func TestHastate(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"Attr":[{"instance":"llb-inst0","state":"MASTER","vip":"0.0.0.0","sync":0}]}`)
	for _, args := range []string{"get hastate", "get ha", "get HAstate"} {
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != session.ExitOK || !strings.Contains(got.Stdout, "| llb-inst0 | MASTER  |") {
			t.Errorf(`%s: got %+v, want exit code ExitOK, "| llb-inst0 | MASTER |" on stdout`,
				args, got)
		}
	}
	for args, want := range map[string]string{
		"set hastate master":                                `{"instance":"llb-inst0","state":"MASTER","vip":"","sync":0}`,
		"set hastate MASTER --lease=30s":                    `{"instance":"llb-inst0","state":"MASTER","vip":"","sync":0,"leaseSeconds":30}`,
		"set ha BACKUP --instance=llb-inst1 --vip=10.0.0.9": `{"instance":"llb-inst1","state":"BACKUP","vip":"10.0.0.9","sync":0}`,
	} {
		s := clitest.NewServer(t, 200, clitest.Success)
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != session.ExitOK || len(s.Requests) != 1 || !sameJSON(t, s.Requests[0], want) {
			t.Errorf("%s: %+v %v, want %s", args, got, s.Requests, want)
		}
	}
	if got := clitest.Run(t, "", "set", "hastate", "MASTER", "--lease=4s"); got.Code != session.ExitUsage || !strings.Contains(got.Stderr, `lease "4s" is out of range`) {
		t.Errorf("got %+v, want exit code ExitUsage, `lease \"4s\" is out of range` on stderr", got)
	}
	if got := clitest.Run(t, "", "set", "hastate", "ACTIVE"); got.Code != session.ExitUsage || !strings.Contains(got.Stderr, `state "ACTIVE" is not known`) {
		t.Errorf("got %+v, want exit code ExitUsage, `state \"ACTIVE\" is not known` on stderr", got)
	}
}

// sameJSON compares the body of a request.
func sameJSON(t *testing.T, request, want string) bool {
	t.Helper()
	var got, expected any
	_, body, _ := strings.Cut(request, "{")
	if err := json.Unmarshal([]byte("{"+body), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(got, expected)
}
