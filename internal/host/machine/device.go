package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Device describes the machine.
type Device struct {
	Host, MachineID, BootID, OS, Kernel, Architecture string
	Uptime                                            time.Duration
}

// Describe reads the description. Missing parts, such as /etc/machine-id in a small image, are
// empty.
func Describe() (Device, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Device{}, fmt.Errorf("read the name of the kernel: %w", err)
	}
	up, err := Uptime()
	if err != nil {
		return Device{}, err
	}
	return Device{
		Host: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]), Architecture: unix.ByteSliceToString(u.Machine[:]),
		MachineID: firstLine("/etc/machine-id"), BootID: firstLine("/proc/sys/kernel/random/boot_id"), OS: osName(), Uptime: up,
	}, nil
}

// Uptime returns how long the machine has been running.
func Uptime() (time.Duration, error) {
	text := firstLine("/proc/uptime")
	first, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/uptime has unknown content %q", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// firstLine returns the first line of a small file, or nothing.
func firstLine(path string) string {
	data, _ := os.ReadFile(path)
	first, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimSpace(string(first))
}

// osName returns the name of the distribution.
func osName() string {
	for _, path := range [...]string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
				return strings.Trim(name, `"'`)
			}
		}
	}
	return "Linux"
}
