package io.quoit.doors;

import io.grpc.testing.integration.GrpcInteropCases;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

@RunWith(JUnit4.class)
public class GrpcOnUringTest extends GrpcInteropCases {
    public GrpcOnUringTest() {
        super(Transport.URING);
    }
}
