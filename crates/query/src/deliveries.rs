//! The running queries whose results go into topics.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Cleanup, Writers};
use millstream_types::{Quotas, TenantId, TopicKind, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::durable_state::ResultRecipient;
use crate::sink::{TopicSink, trouble};
use crate::{Deliver, Engine, Error, QueryId, QueryRequest, RecordSource};

/// Delivers results into topics, each query by a task of its own.
pub struct Deliveries {
    engine: Arc<Engine>,
    quotas: Arc<Quotas>,
    tasks: Mutex<JoinSet<()>>,
}

/// The description of a query whose results go into a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningDeliveries {
    /// The query's name, and the key of its records.
    pub id: QueryId,
    /// The names of a row's members in order; empty if rows are whole payloads.
    pub columns: Vec<String>,
    /// The topic of the results.
    pub topic: String,
    /// The partition of the results.
    pub partition: u32,
}

/// The client that sends a request.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The tenant of the client.
    pub tenant: &'a TenantId,
    /// The account of `quota.*` for the result records.
    pub client: &'a str,
    /// The client's own text, which each result record repeats.
    pub correlation: Option<&'a str>,
}

impl Deliveries {
    /// A set without running queries.
    pub fn new(engine: Arc<Engine>, quotas: Arc<Quotas>) -> Arc<Self> {
        Arc::new(Self { engine, quotas, tasks: Mutex::default() })
    }

    /// The engine that runs the queries.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Starts a query that runs by itself; its results go into the topic that it names. Must be called in a task.
    ///
    /// # Errors
    /// The errors of [`Engine::submit`]; [`Error::NoTopic`]; [`Error::UnfitTopic`].
    pub async fn begin(&self, asker: Requester<'_>, request: QueryRequest) -> Result<RunningDeliveries, Error> {
        let Deliver::Topic(topic) = &request.deliver else { return Err(Error::NoTopic) };
        let topic = self.topic(asker.tenant, topic)?;
        self.check_kept(&topic, request.keep)?;
        let plan = self.engine.validate(&request.query)?;
        if matches!(&plan.source, RecordSource::Topic(source) if TopicName::parse(source, asker.tenant)? == topic) {
            return Err(Error::UnfitTopic {
                topic,
                rule: "it is the one that the query reads, so that each result would be read again",
            });
        }
        let addressee =
            ResultRecipient { client: asker.client.to_owned(), correlation: asker.correlation.map(str::to_owned) };
        let subscription = self.engine.submit_for(asker.tenant, request, Some(addressee)).await?;
        let sink = match self.sink(asker, &topic, subscription.id().to_string()) {
            Ok(sink) => sink,
            Err(error) => {
                subscription.give_up(trouble(&error));
                return Err(error);
            }
        };
        let told = RunningDeliveries {
            id: subscription.id(),
            columns: subscription.opening().columns.to_vec(),
            topic: topic.to_string(),
            partition: sink.partition.id().partition.0,
        };
        self.run(sink.deliver(subscription));
        Ok(told)
    }

    /// Resumes the stored queries of a former process. Must be called in a task.
    pub fn resume(&self) {
        for (subscription, addressee, topic) in self.engine.addressed() {
            let tenant = subscription.tenant().clone();
            let ResultRecipient { client, correlation } = &addressee;
            let asker = Requester { tenant: &tenant, client, correlation: correlation.as_deref() };
            let id = subscription.id();
            let sink = self.topic(&tenant, &topic).and_then(|topic| self.sink(asker, &topic, id.to_string()));
            match sink {
                Ok(sink) => self.run(sink.deliver(subscription)),
                Err(error) => {
                    tracing::warn!(query = %id, %topic, %error, "the results of a live query that was kept have no topic any more");
                    subscription.give_up(trouble(&error));
                }
            }
        }
    }

    /// Refuses a topic from which a crash would take results that count as delivered.
    fn check_kept(&self, topic: &TopicName, keep: bool) -> Result<(), Error> {
        let level = self.engine.log().topic(topic).map(|known| known.config.level);
        if !keep || level != Some(AckLevel::Memory) {
            return Ok(());
        }
        let rule = "it is of level memory, so that a crash would take results that a query with 'keep' has given; choose one \
            of level written or synced";
        Err(Error::UnfitTopic { topic: topic.clone(), rule })
    }

    /// Appends to `topic` why a query is refused.
    pub(crate) async fn refuse(&self, asker: Requester<'_>, topic: &str, error: &Error) -> Result<(), Error> {
        let topic = self.topic(asker.tenant, topic)?;
        let key = asker.correlation.unwrap_or_default().to_owned();
        self.sink(asker, &topic, key)?.refuse(&crate::sink::problem(error)).await;
        Ok(())
    }

    /// Waits for the end records of all queries, at most `drain`: a quota or a full disk may hold them back.
    pub async fn finish(&self, drain: Duration) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, all).await.is_err() {
            tracing::warn!("the ends of some live queries did not reach their topics in time");
        }
    }

    fn run(&self, delivery: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(delivery);
    }

    /// The topic, if the tenant may have results there.
    fn topic(&self, tenant: &TenantId, name: &str) -> Result<TopicName, Error> {
        let topic = TopicName::parse(name, tenant)?;
        let unfit = |rule| Err(Error::UnfitTopic { topic: topic.clone(), rule });
        if topic.tenant() != tenant || topic.kind() != TopicKind::User {
            return unfit("results go into a topic of your own");
        }
        match self.engine.log().topic(&topic) {
            None => unfit("it does not exist; create it first"),
            Some(_) if self.engine.is_asked_in(&topic) => unfit("queries are asked there; choose another"),
            Some(known) if known.config.cleanup != Cleanup::Delete => {
                unfit("it is compacted: of each query only the last record would stay; choose one that is not")
            }
            Some(known) if known.config.writers == Writers::OwnersOnly => unfit("it takes no records from outside"),
            Some(_) => Ok(topic),
        }
    }

    fn sink(&self, asker: Requester<'_>, topic: &TopicName, key: String) -> Result<TopicSink, Error> {
        let unreadable = |source| Error::Log { stream: topic.clone(), source: Box::new(source) };
        let log = self.engine.log();
        let config = log.topic(topic).ok_or_else(|| Error::UnknownStream { stream: topic.clone() })?.config.clone();
        let number = partition_of_key(key.as_bytes(), config.partitions);
        let partition = log.partition(&TopicPartition::new(topic.clone(), number.0)).map_err(unreadable)?;
        Ok(TopicSink {
            partition,
            level: config.level,
            wall: self.engine.wall(),
            quotas: Arc::clone(&self.quotas),
            tenant: asker.tenant.clone(),
            client: asker.client.to_owned(),
            key,
            correlation: asker.correlation.map(str::to_owned),
        })
    }
}
