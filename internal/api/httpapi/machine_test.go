package httpapi

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"testing"

	v1 "loxilb/api/v1"
)

// getAs asks for an object.
func getAs[T any](b *bench, path string) (out T) {
	b.t.Helper()
	w := b.call("GET", BaseURL+path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		b.t.Fatalf("GET %s: %d %v %s", path, w.Code, err, w.Body)
	}
	return out
}

func TestMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	own := strconv.Itoa(os.Getpid())
	list := getAs[v1.ProcessList](b, "/status/process").ProcessAttr
	i := slices.IndexFunc(list, func(p v1.ProcessInfo) bool { return p.Pid == own })
	if i < 0 || list[i].Command == "" || list[i].User == "" || list[i].ResidentSize == "0" {
		t.Errorf("this process is not there, or not whole: %d of %d", i, len(list))
	}
	host, _ := os.Hostname()
	if d := getAs[v1.DeviceInfo](b, "/status/device"); d.HostName != host || d.Kernel == "" || d.Uptime == "" {
		t.Errorf("%+v", d)
	}
	disks := getAs[v1.FilesystemList](b, "/status/filesystem").FilesystemAttr
	if i := slices.IndexFunc(disks, func(f v1.FilesystemInfo) bool { return f.MountedOn == "/" }); i < 0 || disks[i].Size == "" || disks[i].UsePercent == "" {
		t.Errorf("/ is not there, or not whole: %+v", disks)
	}
}
