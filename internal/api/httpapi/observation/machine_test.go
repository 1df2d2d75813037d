package observation_test

import (
	"os"
	"slices"
	"strconv"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/test/apitest"
)

func TestMachine(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	own := strconv.Itoa(os.Getpid())
	list := apitest.GetAs[v1.ProcessList](b, "/status/process").ProcessAttr
	i := slices.IndexFunc(list, func(p v1.ProcessInfo) bool { return p.Pid == own })
	if i < 0 || list[i].Command == "" || list[i].User == "" || list[i].ResidentSize == "0" {
		t.Errorf("this process is missing or incomplete: number %d of %d", i, len(list))
	}
	host, _ := os.Hostname()
	if d := apitest.GetAs[v1.DeviceInfo](b, "/status/device"); d.HostName != host || d.Kernel == "" || d.Uptime == "" {
		t.Errorf("got %+v, want d.HostName == host, d.Kernel not empty, d.Uptime not empty", d)
	}
	disks := apitest.GetAs[v1.FilesystemList](b, "/status/filesystem").FilesystemAttr
	if i := slices.IndexFunc(disks, func(f v1.FilesystemInfo) bool { return f.MountedOn == "/" }); i < 0 || disks[i].Size == "" || disks[i].UsePercent == "" {
		t.Errorf("/ is missing or incomplete: %+v", disks)
	}
}
