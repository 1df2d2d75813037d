package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestFlowLog checks that the flow log has a line for each event of a connection, also after a
// restart.
func TestFlowLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "flows")
	r := rig.New(t, rig.Options{Args: []string{"--flow-log=" + name}})
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=7:5001 --name=echo --endpoints=%s", rig.VIP4, rig.Endpoints4())
	for round := range 2 {
		if round == 1 {
			r.Kill()
			r.Restart()
		}
		var clients []string
		labtest.Eventually(t, rig.Patience, func(context.Context) error { // the receiver may miss the first events
			c := r.Dial(rig.Join(rig.VIP4, 7))
			clients = append(clients, c.LocalAddr().String())
			if err := errors.Join(rig.Exchange(c, "hello"), c.Close()); err != nil {
				return err
			}
			var errs []error
			for _, client := range clients {
				err := findFlow(name, client)
				if err == nil {
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}
}

// findFlow returns an error unless a flow log has the beginning and the end of a client's
// connection.
func findFlow(name, client string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var acts []string
	for line := range strings.Lines(string(text)) {
		var e struct{ Act, Client, VIP, Endpoint, ServName string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if e.Client == client {
			acts = append(acts, e.Act)
		}
		if e.Client == client && (e.VIP != rig.Join(rig.VIP4, 7) || e.ServName != "echo" || !strings.HasSuffix(e.Endpoint, ":5001")) {
			return fmt.Errorf("%q is of another connection", line)
		}
	}
	if got := strings.Join(acts, " "); got != "opened assured closing ended" && got != "opened assured closing" {
		return fmt.Errorf("the log has %q", got)
	}
	return nil
}
