package observation

import (
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/host/machine"
	"loxilb/internal/lb"
)

// GetNode replies with the name, build, uptime, roles and maintenance of this node.
func (a *API) GetNode(w http.ResponseWriter, _ *http.Request) {
	d, err := machine.Describe()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the machine can't be described: %v", err).Write(w)
		return
	}
	rest.JSON(w, v1.Node{
		HostName: d.Host, Version: a.Version.Version, Commit: a.Version.Commit, Kernel: d.Kernel, Namespace: a.Version.Namespace,
		Started: time.Now().Add(-time.Since(a.started)), Uptime: time.Since(a.started).Seconds(), MachineUptime: d.Uptime.Seconds(),
		Instances: a.Roles(), Maintenance: a.maintenance(),
	})
}

// maintenance returns this node's maintenance; nil: it is in service.
func (a *API) maintenance() *v1.NodeMaintenance {
	one := a.Store.Maintenance.Here(a.Store.Snapshot())
	if one == nil {
		return nil
	}
	out := &v1.NodeMaintenance{Stage: string(one.Stage()), Since: one.Since, Deadline: one.Deadline, Exit: one.Exit}
	if a.Drain != nil && one.Stage() == lb.Draining {
		progress := a.Drain()
		out.Connections, out.PacketRate, out.Idle = int(progress.Connections), progress.PacketRate, progress.Idle.Seconds()
	}
	return out
}
