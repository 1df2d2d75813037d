package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// FileSystem is a mounted file system as df shows it.
type FileSystem struct {
	Source, Type, MountedOn string
	Size, Used, Avail       uint64 // bytes
	HasSizes                bool   // false: not queried
}

// FileSystems returns the file systems with a size, like df. Of several at one mount point, it
// returns the topmost. It does not query network file systems, as a query hangs without the server.
func FileSystems() ([]FileSystem, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []FileSystem
	at := map[string]int{}
	for _, m := range mounts {
		fs := FileSystem{Source: m.Source, Type: m.FSType, MountedOn: m.MountPoint}
		if !isRemote(m.FSType) {
			var s unix.Statfs_t
			if unix.Statfs(m.MountPoint, &s) != nil || s.Blocks == 0 {
				continue
			}
			block := uint64(s.Bsize)
			fs.HasSizes, fs.Size, fs.Avail = true, s.Blocks*block, s.Bavail*block
			fs.Used = (s.Blocks - s.Bfree) * block
		}
		if i, there := at[fs.MountedOn]; there {
			out[i] = fs
			continue
		}
		at[fs.MountedOn] = len(out)
		out = append(out, fs)
	}
	return out, nil
}

// UsedPercent returns the used percentage of the space available to users, rounded up.
func (f *FileSystem) UsedPercent() uint64 {
	if f.Used+f.Avail == 0 {
		return 0
	}
	return (100*f.Used + f.Used + f.Avail - 1) / (f.Used + f.Avail)
}

func isRemote(kind string) bool {
	switch kind {
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "autofs", "glusterfs", "lustre":
		return true
	}
	return strings.HasPrefix(kind, "fuse")
}

// FormatSize formats like df -h: one decimal below 10.
func FormatSize(bytes uint64) string {
	if bytes < 1024 {
		return strconv.FormatUint(bytes, 10)
	}
	v, unit := float64(bytes), -1
	for v >= 1024 {
		v, unit = v/1024, unit+1
	}
	digits := 0
	if v < 10 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + "KMGTPE"[unit:unit+1]
}
