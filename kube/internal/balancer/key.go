package balancer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
)

// keyOf returns the key of a service that a balancer reports: that of translate.KeyOf, with a range
// of ports and a mark if it has them.
func keyOf(s *v1.ServiceArguments) string {
	host := s.ExternalIP
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := fmt.Sprint(s.Port)
	if s.PortMax > s.Port {
		port += "-" + fmt.Sprint(s.PortMax)
	}
	key := host + ":" + port + "/" + s.Protocol
	if s.Block != 0 {
		key += fmt.Sprintf("/mark=%d", s.Block)
	}
	return key
}

// specOfKey returns a spec that only identifies a service, for its deletion.
func specOfKey(key string) json.RawMessage {
	rest, mark, _ := strings.Cut(key, "/mark=")
	rest, protocol, _ := strings.Cut(rest, "/")
	colon := strings.LastIndex(rest, ":")
	host, ports := strings.Trim(rest[:colon], "[]"), rest[colon+1:]
	first, last, _ := strings.Cut(ports, "-")
	args := map[string]any{"externalIP": host, "protocol": protocol, "port": number(first)}
	if last != "" {
		args["portMax"] = number(last)
	}
	if mark != "" {
		args["block"] = number(mark)
	}
	data, _ := json.Marshal(map[string]any{"serviceArguments": args, "endpoints": []any{}})
	return data
}

// number returns the number in a part of a key.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
