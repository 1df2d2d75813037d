package desired

import (
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// helperValues returns a service's values in the index byHelper.
func helperValues(s lb.Service) []string {
	if s.Helper == lb.HelperNone {
		return nil
	}
	return []string{s.Helper.String()}
}

// checkTFTP refuses more ports of TFTP servers than the data path has room for, unless there are no
// more than before.
func (s *Services) checkTFTP(before, after *store.Snapshot) error {
	ports := s.tftpPorts(after)
	if len(ports) <= lb.MaxTFTPPorts || len(ports) <= len(s.tftpPorts(before)) {
		return nil
	}
	var list []string
	for _, p := range ports {
		list = append(list, strconv.Itoa(int(p)))
	}
	return lb.NewFieldError(lb.FieldHelper, lb.HelperTFTP.String(), "would have endpoints with ports "+strings.Join(list, ", "),
		strconv.Itoa(lb.MaxTFTPPorts)+" different ports, in all services together")
}

// tftpPorts returns the ports of the endpoints of all services with helper TFTP.
func (s *Services) tftpPorts(v store.View) []uint16 {
	var ports []uint16
	for one := range s.Find(v, byHelper, lb.HelperTFTP.String()) {
		for _, e := range one.Endpoints {
			if !slices.Contains(ports, e.Port) {
				ports = append(ports, e.Port)
			}
		}
	}
	slices.Sort(ports)
	return ports
}
