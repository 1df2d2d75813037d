package labtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// ownNetwork is the environment variable that is set in the process with its own network.
const ownNetwork = "LABTEST_OWN_NETWORK"

// OwnNetwork runs the tests of a package in a new network namespace that only has the loopback
// interface. TestMain calls it, and exits with its result.
func OwnNetwork(m *testing.M) (code int) {
	if os.Getenv(ownNetwork) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the network of the tests:", err)
			return 1
		}
		return m.Run()
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), ownNetwork+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := again.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "run the tests in a new network namespace:", err)
		return 1
	}
	return 0
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
