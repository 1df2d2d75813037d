package host

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// card is a virtio-net card of the guest. Its other side is a tap of the same name in a namespace.
type card struct {
	name   string
	peer   *netnstest.Host
	queues int
}

// mac returns the MAC address of card n. The guest finds its cards by this address.
func mac(n int) string { return fmt.Sprintf("52:54:00:00:00:%02x", n+1) }

// guest is the virtual machine.
type guest struct {
	t       testing.TB
	stdin   io.Writer
	answers chan answer
	console string
	taps    []*os.File
}

// answer is the output and exit status of a command.
type answer struct {
	output string
	status int
}

// bootPatience is the time limit for booting the guest, commandPatience that for one command.
const (
	bootPatience    = 5 * time.Minute
	commandPatience = 5 * time.Minute
)

// boot starts the virtual machine and names its cards. The virtual machine ends with the test.
func boot(t testing.TB, cards ...card) *guest {
	t.Helper()
	g := &guest{t: t, answers: make(chan answer, 1), console: filepath.Join(t.TempDir(), "console")}
	qemu := exec.Command("qemu-system-x86_64", "-cpu", "max,la57=off,erms=off,fsrm=off", "-accel", "tcg,thread=multi,tb-size=512",
		"-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:"+g.console,
		"-device", "virtio-serial-pci", "-chardev", "stdio,id=commands", "-device", "virtserialport,chardev=commands",
		"-kernel", os.Getenv("LOXILB_HOST_KERNEL"), "-initrd", os.Getenv("LOXILB_HOST_INITRD"),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off")
	for n, c := range cards {
		fds := make([]string, c.queues)
		for q := range fds {
			tap, err := c.peer.OpenTun(c.name, unix.IFF_TAP|unix.IFF_MULTI_QUEUE|unix.IFF_VNET_HDR)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tap.Close() })
			g.taps = append(g.taps, tap)
			fds[q] = strconv.Itoa(3 + len(qemu.ExtraFiles))
			qemu.ExtraFiles = append(qemu.ExtraFiles, tap)
		}
		qemu.Args = append(qemu.Args, "-netdev", fmt.Sprintf("tap,id=%s,fds=%s", c.name, strings.Join(fds, ":")),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,mq=on,vectors=%d,romfile=", c.name, mac(n), 2*c.queues+2))
	}
	g.start(qemu)
	g.wait(bootPatience)
	for n, c := range cards {
		g.run(`for i in /sys/class/net/*; do
			[ "$(cat $i/address)" != %s ] || ip link set ${i##*/} name %s
		done`, mac(n), c.name)
	}
	return g
}

// steer makes the taps choose the guest's receive queues by the flow alone, as RSS of network cards
// does. Without a program, a tap assigns a flow to the queue on which the guest last sent the
// flow's other direction. It learns that only after delivering the packet, and the peers here reply
// within the delivery. With address translation, the two directions have different hashes, so
// connections would constantly change queues and lose their order. QEMU detaches the program
// whenever the guest changes its number of queues.
func (g *guest) steer() {
	g.t.Helper()
	const hash = 68 // struct __sk_buff
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, hash, asm.Word),
		asm.Return(),
	}})
	if err != nil {
		g.t.Fatal(err)
	}
	defer program.Close()
	for _, tap := range g.taps {
		if err := unix.IoctlSetPointerInt(int(tap.Fd()), unix.TUNSETSTEERINGEBPF, program.FD()); err != nil {
			g.t.Fatalf("steer %s: %v", tap.Name(), err)
		}
	}
}

// start starts QEMU on a thread that lives until its end, as PR_SET_PDEATHSIG requires.
func (g *guest) start(qemu *exec.Cmd) {
	g.t.Helper()
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := qemu.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	out, err := qemu.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	var faults strings.Builder
	qemu.Stderr = &faults
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := qemu.Start()
		started <- err
		if err == nil {
			g.read(out)
			_ = qemu.Wait()
		}
		close(done)
	}()
	if err := <-started; err != nil {
		g.t.Fatal(err)
	}
	g.stdin = in
	g.t.Cleanup(func() {
		_ = qemu.Process.Kill()
		<-done
		if g.t.Failed() {
			console, _ := os.ReadFile(g.console)
			g.t.Logf("QEMU: %s\nconsole of the guest:\n%s", faults.String(), console)
		}
	})
}

// read splits the guest's output into answers until QEMU ends.
func (g *guest) read(out io.Reader) {
	defer close(g.answers)
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if status, ok := strings.CutPrefix(lines.Text(), "=== "); ok {
			n, err := strconv.Atoi(status)
			if err != nil {
				n = -1
			}
			g.answers <- answer{strings.TrimSpace(text.String()), n}
			text.Reset()
			continue
		}
		text.WriteString(lines.Text() + "\n")
	}
}

func (g *guest) wait(patience time.Duration) answer {
	g.t.Helper()
	select {
	case a, ok := <-g.answers:
		if !ok {
			g.t.Fatal("the guest has ended")
		}
		return a
	case <-time.After(patience):
		g.t.Fatalf("the guest does not answer within %v", patience)
	}
	return answer{}
}

// try runs a shell script in the guest.
func (g *guest) try(script string, args ...any) (string, error) {
	g.t.Helper()
	script = fmt.Sprintf(script, args...)
	if _, err := fmt.Fprintln(g.stdin, base64.StdEncoding.EncodeToString([]byte(script+"\n"))); err != nil {
		g.t.Fatal(err)
	}
	a := g.wait(commandPatience)
	if a.status != 0 {
		return a.output, fmt.Errorf("in the guest: %s\nexit status %d\n%s", script, a.status, a.output)
	}
	return a.output, nil
}

// run runs a shell script in the guest, and fails the test if it fails.
func (g *guest) run(script string, args ...any) string {
	g.t.Helper()
	out, err := g.try(script, args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}
