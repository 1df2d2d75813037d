package machine

import (
	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func processKind() session.Kind[v1.ProcessList, v1.ProcessInfo] {
	return session.Kind[v1.ProcessList, v1.ProcessInfo]{
		Word: "process", Aliases: []string{"Process", "processes"},
		GetHelp:      session.Help{Short: "Show processes of the server's machine, like top", Example: "  loxicmd get process"},
		DescribeHelp: session.Help{Short: "Show a process in full", Example: "  loxicmd describe process"},
		Key:          "processAttr", Object: "", Fetch: (*v1.Client).GetProcesses,
		Items:      func(l *v1.ProcessList) *[]v1.ProcessInfo { return &l.ProcessAttr },
		Name:       func(d *v1.ProcessInfo) string { return d.Pid },
		OtherNames: func(d *v1.ProcessInfo) []string { return []string{d.Command} },
		Draw: func(list *v1.ProcessList) *session.Table {
			t := session.NewTable("pid", "user", "priority", "nice", "virtMemory", "residentSize", "sharedMemory", "status", "CPUUsage", "MemoryUsage", "time", "command")
			for _, p := range list.ProcessAttr {
				t.Add(p.Pid, p.User, p.Priority, p.Nice, p.VirtMemory, p.ResidentSize, p.SharedMemory, p.Status, p.CPUUsage, p.MemoryUsage, p.Time, session.OneLine(p.Command))
			}
			return t
		},
	}
}

func getDevice(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "device",
		Aliases: []string{"devices"},
		Short:   "Show the server's machine: host name, OS, kernel and uptime",
		Example: "  loxicmd get device",
		Args:    cobra.NoArgs,
		RunE: session.Show(o, (*v1.Client).GetDevice, func(d *v1.DeviceInfo) *session.Table {
			t := session.NewTable("hostName", "machineID", "bootID", "OS", "kernel", "architecture", "uptime")
			t.Add(d.HostName, d.MachineID, d.BootID, d.OS, d.Kernel, d.Architecture, d.Uptime)
			return t
		}),
	}
}

func filesystemKind() session.Kind[v1.FilesystemList, v1.FilesystemInfo] {
	return session.Kind[v1.FilesystemList, v1.FilesystemInfo]{
		Word: "filesystem", Aliases: []string{"fs"},
		GetHelp:      session.Help{Short: "Show file systems of the server's machine, like df", Example: "  loxicmd get filesystem"},
		DescribeHelp: session.Help{Short: "Show a file system in full", Example: "  loxicmd describe filesystem"},
		Key:          "filesystemAttr", Object: "", Fetch: (*v1.Client).GetFilesystems,
		Items:      func(l *v1.FilesystemList) *[]v1.FilesystemInfo { return &l.FilesystemAttr },
		Name:       func(d *v1.FilesystemInfo) string { return d.MountedOn },
		OtherNames: func(d *v1.FilesystemInfo) []string { return []string{d.FileSystem} },
		Draw: func(list *v1.FilesystemList) *session.Table {
			t := session.NewTable("fileSystem", "type", "size", "used", "avail", "usePercent", "mountedOn")
			for _, f := range list.FilesystemAttr {
				t.Add(session.OneLine(f.FileSystem), f.Type, f.Size, f.Used, f.Avail, f.UsePercent, session.OneLine(f.MountedOn))
			}
			return t
		},
	}
}
