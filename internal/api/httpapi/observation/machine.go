package observation

import (
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/host/machine"
)

// GetProcesses replies with the processes of the machine.
func (a *API) GetProcesses(w http.ResponseWriter, _ *http.Request) {
	list, err := machine.Processes()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the processes can't be read: %v", err).Write(w)
		return
	}
	out := v1.ProcessList{ProcessAttr: make([]v1.ProcessInfo, len(list))}
	for i, p := range list {
		out.ProcessAttr[i] = v1.ProcessInfo{
			Pid: strconv.Itoa(p.PID), User: p.User, Priority: strconv.Itoa(p.Priority), Nice: strconv.Itoa(p.Nice),
			VirtMemory: kibi(p.Virtual), ResidentSize: kibi(p.Resident), SharedMemory: kibi(p.Shared), Status: p.State,
			CPUUsage: percent(p.CPU), MemoryUsage: percent(p.Memory), Time: machine.FormatCPUTime(p.Time), Command: p.Command,
		}
	}
	rest.JSON(w, out)
}

// GetDevice replies with a description of the machine.
func (a *API) GetDevice(w http.ResponseWriter, _ *http.Request) {
	d, err := machine.Describe()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the machine can't be described: %v", err).Write(w)
		return
	}
	rest.JSON(w, v1.DeviceInfo{
		HostName: d.Host, MachineID: d.MachineID, BootID: d.BootID, OS: d.OS, Kernel: d.Kernel, Architecture: d.Architecture,
		Uptime: d.Uptime.Truncate(time.Second).String(),
	})
}

// GetFilesystems replies with the file systems that have a size.
func (a *API) GetFilesystems(w http.ResponseWriter, _ *http.Request) {
	list, err := machine.FileSystems()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the file systems can't be read: %v", err).Write(w)
		return
	}
	out := v1.FilesystemList{FilesystemAttr: make([]v1.FilesystemInfo, len(list))}
	for i := range list {
		f := &list[i]
		e := v1.FilesystemInfo{FileSystem: f.Source, Type: f.Type, MountedOn: f.MountedOn, Size: "-", Used: "-", Avail: "-", UsePercent: "-"}
		if f.HasSizes {
			e.Size, e.Used, e.Avail = machine.FormatSize(f.Size), machine.FormatSize(f.Used), machine.FormatSize(f.Avail)
			e.UsePercent = strconv.FormatUint(f.UsedPercent(), 10) + "%"
		}
		out.FilesystemAttr[i] = e
	}
	rest.JSON(w, out)
}

func kibi(bytes uint64) string { return strconv.FormatUint(bytes>>10, 10) }
func percent(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
