package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestAbandonedRoleRequest checks that a daemon that continues after SIGSTOP ignores a role in a
// request whose sender has disconnected meanwhile: another node may be MASTER.
func TestAbandonedRoleRequest(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--host=0.0.0.0", "--insecure"}})
	r.Loxicmd("set hastate BACKUP")
	const address = "100.100.100.254"
	post := func() net.Conn {
		c, err := r.Client.DialContext(t.Context(), "tcp", net.JoinHostPort(address, "11111"))
		if err != nil {
			t.Fatal(err)
		}
		body := `{"instance":"default","state":"MASTER","vip":"0.0.0.0"}`
		if _, err := fmt.Fprintf(c, "POST /netlox/v1/config/cistate HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			address, len(body), body); err != nil {
			t.Fatal(err)
		}
		return c
	}
	isMaster := func() bool { return strings.Contains(r.Loxicmd("get hastate -o json"), `"MASTER"`) }

	r.Process.Signal(syscall.SIGSTOP)
	post().Close()
	r.Process.Signal(syscall.SIGCONT)
	labtest.Eventually(t, rig.Patience, func(context.Context) error { return checkHealth(t, r.Client, address) })
	await.Steady(t, time.Second, func() error {
		if isMaster() {
			return errors.New("the node has a role of a sender that has disconnected")
		}
		return nil
	})

	r.Process.Signal(syscall.SIGSTOP)
	waiting := post()
	defer waiting.Close()
	r.Process.Signal(syscall.SIGCONT)
	if _, err := io.ReadAtLeast(waiting, make([]byte, 4096), 12); err != nil || !isMaster() {
		t.Errorf("the role of a sender that waits has no effect: %v", err)
	}
}
