import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.nio.charset.StandardCharsets;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Qpid JMS: HOST PORT NAME SECRET; PREFETCH is the number of messages that wait in the client. */
public class JmsTour {
    static final String REPLY = "command_response/default/tour";

    public static void main(String[] args) throws Exception {
        String prefetch = System.getenv("PREFETCH");
        String uri = "amqp://" + args[0] + ":" + args[1] + "?jms.prefetchPolicy.all=" + prefetch;
        Connection connection = new JmsConnectionFactory(args[2], args[3], uri).createConnection();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer telemetry = session.createConsumer(session.createQueue("telemetry/default"));
        MessageConsumer responses = session.createConsumer(session.createQueue(REPLY));
        MessageConsumer events = session.createConsumer(session.createQueue("event/default"));
        connection.start();
        System.out.println("ready");
        boolean done = false;
        while (!done) {
            Message message = telemetry.receive(50);
            if (message != null) {
                String body = body(message);
                System.out.println("telemetry " + message.getStringProperty("device_id") + " " + body);
                message.acknowledge();
                if (body.equals("go")) {
                    command(session);
                }
            }
            message = events.receive(50);
            if (message != null) {
                System.out.println("event " + message.getStringProperty("device_id") + " " + body(message));
                message.acknowledge();
            }
            message = responses.receive(50);
            if (message != null) {
                System.out.println("command_response " + message.getStringProperty("device_id") + " " + body(message)
                        + " " + message.getIntProperty("status") + " " + message.getJMSCorrelationID());
                message.acknowledge();
                done = true;
            }
        }
        connection.close();
    }

    static void command(Session session) throws Exception {
        BytesMessage command = session.createBytesMessage();
        command.writeBytes("input".getBytes(StandardCharsets.UTF_8));
        command.setJMSType("on");
        command.setJMSCorrelationID("c-1");
        command.setJMSReplyTo(session.createQueue(REPLY));
        // Waits for the outcome; another one than accepted is thrown.
        session.createProducer(null).send(session.createQueue("command/default/d"), command);
        System.out.println("outcome accepted");
    }

    static String body(Message message) throws Exception {
        if (message instanceof TextMessage text) {
            return text.getText();
        }
        if (message instanceof BytesMessage bytes) {
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            return new String(body, StandardCharsets.UTF_8);
        }
        return "";
    }
}
