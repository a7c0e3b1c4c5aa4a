// A receiver of traces with the official messages of OpenTelemetry and grpc-go: prints its ports, and then every span as
// a line of JSON.
//
// usage: otlp-receiver CERTIFICATE KEY
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type receiver struct {
	collector.UnimplementedTraceServiceServer
}

func show(request *collector.ExportTraceServiceRequest) {
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				line, err := protojson.Marshal(span)
				if err != nil {
					log.Fatal(err)
				}
				fmt.Println(string(line))
			}
		}
	}
}

func (receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	show(request)
	return &collector.ExportTraceServiceResponse{}, nil
}

func post(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var export collector.ExportTraceServiceRequest
	if err != nil || request.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &export) != nil {
		http.Error(writer, "no export", http.StatusBadRequest)
		return
	}
	show(&export)
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	writer.Header().Set("Content-Type", "application/x-protobuf")
	writer.Write(answer)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func port(listener net.Listener) int {
	return listener.Addr().(*net.TCPAddr).Port
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	plain, secure, web := listen(), listen(), listen()
	for listener, options := range map[net.Listener][]grpc.ServerOption{
		plain:  nil,
		secure: {grpc.Creds(credentials.NewServerTLSFromCert(&certificate))},
	} {
		server := grpc.NewServer(options...)
		collector.RegisterTraceServiceServer(server, receiver{})
		go func() { log.Fatal(server.Serve(listener)) }()
	}
	http.HandleFunc("POST /v1/traces", post)
	go func() { log.Fatal(http.Serve(web, nil)) }()
	fmt.Println(port(plain), port(secure), port(web))
	select {}
}
