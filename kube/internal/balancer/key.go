package balancer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
)

// keyOf returns the key of a balancer's service.
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

// specOfKey returns the smallest spec that identifies a service, for a deletion.
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

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
